// What the facts about a machine mean for training: one finding each, with its fix.
//
// Pure: no file, clock or environment. Names of findings are the ones that `--json` prints.

#pragma once

#include "app/doctor/facts.hpp"
#include "app/doctor/finding.hpp"

namespace troupe::app {

/// `build`: a warning where it is not made for speed.
Finding check_build(const BuildFacts& facts);
/// `gpu`: never a problem, because jobs run on CPUs too.
Finding check_gpu(const GpuFacts& facts);
/// `nccl`: always fine; says whether the library is there, what it lacks, and who would use it.
Finding check_nccl(const NcclFacts& facts);
/// `nccl rows`: always fine; whether rows between stages can go by NCCL here, or why not.
Finding check_nccl_rows(const NcclFacts& nccl, const GpuFacts& gpus);

/// `ucx`: a problem without a network transport, a warning without shared memory.
Finding check_ucx(const UcxFacts& facts);
/// `door`: a problem where nodes could not show their key.
Finding check_door(const DoorFacts& facts);
/// `host name`: what other machines are told where a job listens on all addresses.
Finding check_host_name(const HostNameFacts& facts);
/// `network`: over which interface tensors go; a problem where the one that is asked for is no
/// device of UCX.
Finding check_network(const NetworkFacts& facts);
/// `clock`: a warning where it is behind the build.
Finding check_clock(const ClockFacts& facts);

/// `name` (`disk`, `run folder`): room, speed, kind of file system.
Finding check_folder(const std::string& name, const FolderFacts& facts);
/// `shared memory`: a problem where a job would not start or run out of it.
Finding check_shared_memory(const SharedMemoryFacts& facts);

/// `open files`, `locked memory`, `tasks`, `core files`.
std::vector<Finding> check_limits(const LimitFacts& facts);
/// `memory`: what is free, and a control group that planning does not know of.
Finding check_memory(const MemoryFacts& facts);
/// `cores`: fewer than the machine has, or than a job's threads.
Finding check_cores(const CoreFacts& facts);
/// `threads`: variables of OpenMP that bind every node to the same cores.
Finding check_threads(const ThreadVariables& facts);
/// `container`: always fine; what it keeps apart.
Finding check_container(const ContainerFacts& facts);

/// Instead of a check whose question was not answered within `limit_s`.
Finding no_answer(const std::string& name, double limit_s, Level level);

}  // namespace troupe::app
