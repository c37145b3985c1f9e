#include "app/version.hpp"

#include <torch/version.h>
#include <boost/version.hpp>
#include <caf/config.hpp>

#include "app/build_facts.hpp"

namespace troupe::app {

namespace {

/// CAF's 1706 as 0.17.6.
std::string caf_version() {
  return std::to_string(CAF_VERSION / 10000) + "." + std::to_string(CAF_VERSION / 100 % 100) + "." +
         std::to_string(CAF_VERSION % 100);
}

std::string boost_version() {
  return std::to_string(BOOST_VERSION / 100000) + "." + std::to_string(BOOST_VERSION / 100 % 1000);
}

}  // namespace

std::string libraries_text() {
  return std::string("LibTorch ") + TORCH_VERSION + ", CAF " + caf_version() + ", UCX " +
         kUcxVersion + ", Boost " + boost_version();
}

BuildParts build_parts() { return {kCompiler, kBuildType, kSanitizers, kUcxVersion}; }

std::string build_id() { return std::string(kVersion) + " (" + kCommit + ")"; }

std::string version_text() {
  return "troupe " + build_id() + "\n" + "compiler   " + kCompiler + ", " + kBuildType +
         (*kSanitizers == '\0' ? "" : ", sanitizers ") + kSanitizers + "\n" + "libraries  " +
         libraries_text() + "\n" + "devices    cpu";
}

}  // namespace troupe::app
