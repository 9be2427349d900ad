#pragma once

#include <chrono>
#include <string>

#include "ctran/base/config.h"

namespace torch::comms {

/// A configuration variable that is a duration, written in seconds: "30", "0.5".
class ConfigSeconds : public ctran::ConfigVariable {
 public:
  ConfigSeconds(const char* name, double value, const char* doc)
      : ConfigVariable(name, doc), default_(value) {}

  /// Rounded up to a millisecond. Throws ctran::Error (InvalidArgument).
  std::chrono::milliseconds get() const;
  std::string type() const override { return "seconds"; }
  std::string defaultText() const override;
  std::string valueText() const override;
  void check(const std::string& text) const override { static_cast<void>(parse(text)); }

 private:
  double seconds() const;
  double parse(const std::string& text) const;

  double default_;
};

inline const ctran::ConfigBool kAbortOnError{
    "TORCHCOMM_ABORT_ON_ERROR", true,
    "Default of abort_process_on_timeout_or_error: whether an error that nobody is waiting for "
    "ends the process."};

inline const ConfigSeconds kTimeoutSeconds{
    "TORCHCOMM_TIMEOUT_SECONDS", 600,
    "Default timeout of creating a communicator and of its operations."};

inline const ConfigSeconds kErrorGraceSeconds{
    "TORCHCOMM_ERROR_GRACE_SECONDS", 10,
    "How long the program may leave a failed operation unexamined before the process ends, where "
    "abort_process_on_timeout_or_error is on."};

}  // namespace torch::comms
