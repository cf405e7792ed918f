// New state of one path, handed over run by run.
#pragma once

#include <memory>

#include "cache/shared_state.h"
#include "skippy/cache.h"

namespace skippy {

// `domain` must be open.
std::unique_ptr<Recording> MakeRecording(std::shared_ptr<SharedState> shared, DomainId domain,
                                         ResumeRule rule);

// Takes nothing: without a tier, or for an unknown domain.
std::unique_ptr<Recording> MakeClosedRecording();

}  // namespace skippy
