#pragma once

#include <functional>

#include "ctran/base/json.h"

namespace ctran {

/// What a function for programs that are not C++ returns for its request: see capi/plan.h.
char* answered(const char* request, const std::function<Json(const Json&)>& answer);

}  // namespace ctran
