// The files of examples that `troupe new` begins from: a family's (examples/resampler), a policy's
// (examples/snake), a schedule's (examples/windows), a data format's (examples/captions), an
// observer's (examples/statistics), a stage's (examples/sentry), a program's (examples/weaver).

#pragma once

#include <string_view>

namespace troupe::app {

extern const std::string_view kFamilySource;
extern const std::string_view kFamilyBuild;
extern const std::string_view kFamilyJob;
extern const std::string_view kFamilyTest;

extern const std::string_view kPolicySource;
extern const std::string_view kPolicyBuild;
extern const std::string_view kPolicyJob;
extern const std::string_view kPolicyTest;

extern const std::string_view kScheduleSource;
extern const std::string_view kScheduleBuild;
extern const std::string_view kScheduleJob;
extern const std::string_view kScheduleTest;

extern const std::string_view kFormatSource;
extern const std::string_view kFormatBuild;
extern const std::string_view kFormatJob;
extern const std::string_view kFormatTest;

extern const std::string_view kObserverSource;
extern const std::string_view kObserverBuild;
extern const std::string_view kObserverJob;
extern const std::string_view kObserverTest;

extern const std::string_view kStageSource;
extern const std::string_view kStageBuild;
extern const std::string_view kStageJob;
extern const std::string_view kStageTest;

extern const std::string_view kProgramSource;
extern const std::string_view kProgramBuild;
extern const std::string_view kProgramJob;
extern const std::string_view kProgramTest;

}  // namespace troupe::app
