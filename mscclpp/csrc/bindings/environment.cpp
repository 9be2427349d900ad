// What variables of the environment say, for mscclpp.environment.
#include "mscclpp/csrc/environment.h"

#include <stdexcept>

#include "mscclpp/csrc/bindings/communicator.h"

namespace mscclpp::python {
namespace {

namespace settings = mscclpp::environment;

void put(PyObject* dictionary, const char* name, const Ref& value) {
  if (PyDict_SetItemString(dictionary, name, value.get()) != 0) throw PythonError();
}

Ref string(const std::string& text) {
  return checked(
      PyUnicode_DecodeFSDefaultAndSize(text.data(), static_cast<Py_ssize_t>(text.size())));
}

Ref valueOf(const settings::Variable& variable) {
  switch (variable.kind) {
    case settings::Kind::Flag:
      return checked(PyBool_FromLong(settings::flag(variable.name) ? 1 : 0));
    case settings::Kind::Seconds:
      try {
        return checked(PyLong_FromLong(settings::seconds(variable.name)));
      } catch (const std::invalid_argument& error) {
        raise(PyExc_ValueError, error.what());
      }
    case settings::Kind::Text:
      break;
  }
  return string(settings::text(variable.name));
}

/// environment() -> what each variable says, by the attribute of Env
PyObject* environment(PyObject*, PyObject*) {
  return guarded([&] {
    Ref all = checked(PyDict_New());
    for (const settings::Variable& variable : settings::kVariables) {
      put(all.get(), variable.attribute, valueOf(variable));
    }
    return all.release();
  });
}

/// adopted() -> the engine's variables that stand for those, and their values
PyObject* adopted(PyObject*, PyObject*) {
  return guarded([&] {
    Ref all = checked(PyDict_New());
    for (const auto& [name, value] : settings::adopted()) {
      put(all.get(), name.c_str(), string(value));
    }
    return all.release();
  });
}

/// idle_variables() -> the names of those that are set and have no effect
PyObject* idleVariables(PyObject*, PyObject*) {
  return guarded([&] {
    Ref names = checked(PyList_New(0));
    for (const std::string& name : settings::idle()) {
      if (PyList_Append(names.get(), string(name).get()) != 0) throw PythonError();
    }
    return names.release();
  });
}

PyMethodDef functions[] = {{"environment", environment, METH_NOARGS, nullptr},
                           {"adopted", adopted, METH_NOARGS, nullptr},
                           {"idle_variables", idleVariables, METH_NOARGS, nullptr},
                           {}};

}  // namespace

bool addEnvironment(PyObject* module) { return PyModule_AddFunctions(module, functions) == 0; }

}  // namespace mscclpp::python
