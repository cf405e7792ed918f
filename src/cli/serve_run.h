// The life of `skippy serve`, from open to closed.
#pragma once

#include "cli/stop_signal.h"
#include "control/options.h"

namespace skippy {

// Serves until a stop signal. Returns the exit status: 0 after a requested stop, kExitFailed with
// one line on standard error when serving could not start or state could not be closed. All runs
// and ends in this call. Call it with no other thread running.
int RunServe(const ServeConfiguration& configuration, StopSignal* stop);

}  // namespace skippy
