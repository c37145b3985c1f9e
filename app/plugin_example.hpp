// The files of examples/resampler, which `troupe new family` begins from.

#pragma once

#include <string_view>

namespace troupe::app {

extern const std::string_view kExampleSource;
extern const std::string_view kExampleBuild;
extern const std::string_view kExampleJob;
extern const std::string_view kExampleTest;

}  // namespace troupe::app
