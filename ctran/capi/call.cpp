#include "ctran/capi/call.h"

#include <cstring>

#include "ctran/base/error.h"

namespace ctran {

char* answered(const char* request, const std::function<Json(const Json&)>& answer) {
  Json result = Json::object();
  try {
    result.set("ok", answer(Json::parse(request, "the request")));
  } catch (const Error& error) {
    result = Json::object();
    result.set("error", Json(error.what())).set("kind", Json(static_cast<int>(error.kind())));
  } catch (const std::exception& error) {  // no memory, for example
    result = Json::object();
    result.set("error", Json(error.what()));
    result.set("kind", Json(static_cast<int>(ErrorKind::System)));
  }
  return ::strdup(result.print().c_str());
}

}  // namespace ctran
