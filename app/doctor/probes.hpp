// Looks facts about this machine up. Each may hang where the machine does: see `Asked`.
//
// Nothing is changed, but for a file that `probe_folder` writes and removes. `root` stands before
// the system's files (/proc, /sys), so that tests bring their own.

#pragma once

#include <filesystem>

#include "app/doctor/facts.hpp"

namespace troupe::app {

GpuFacts probe_gpus(const std::filesystem::path& root = "/");
NcclFacts probe_nccl();

/// `built_version`: of UCX, when this build was made.
UcxFacts probe_ucx(const std::string& built_version);
DoorFacts probe_door(std::chrono::steady_clock::time_point deadline);
HostNameFacts probe_host_name();
/// Without `ways` and what is wanted.
NetworkFacts probe_interfaces(const std::filesystem::path& root = "/");
/// `built` is the age of the program's file.
ClockFacts probe_clock();

/// Writes some MiB to the disk, locks and renames the file, and removes it.
FolderFacts probe_folder(const std::filesystem::path& folder);
/// Without `processes` and `is_wanted`.
SharedMemoryFacts probe_shared_memory(const std::filesystem::path& folder = "/dev/shm",
                                      const std::filesystem::path& root = "/");

/// Without `nodes`.
LimitFacts probe_limits(const std::filesystem::path& root = "/");
MemoryFacts probe_memory(const std::filesystem::path& root = "/");
/// Without `wanted`.
CoreFacts probe_cores(const std::filesystem::path& root = "/");
ThreadVariables probe_threads();
ContainerFacts probe_container(const std::filesystem::path& root = "/");

}  // namespace troupe::app
