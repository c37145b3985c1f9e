// Which devices there are in this process, as LibTorch knows them.

#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

/// Where tensors of a device called `name` lie, of those the `index`th, counted round: "cpu",
/// "cuda", or what a plug-in has registered with LibTorch. Loads what LibTorch needs for it.
/// Errors: unavailable: there is none, and why.
Result<c10::Device> find_place(const std::string& name, std::int32_t index);

/// Which operators LibTorch may take on accelerators in this process, of which `place` is one that
/// it computes on: those alone that give the same bits each time, the others being errors
/// (`indeterminate_operator`); or any. Of a CPU's nothing is asked. Kernels of ours have one order.
/// Errors: unavailable: the environment has cuBLAS add up in no fixed order.
Status choose_operators(c10::Device place, bool deterministic);

/// Both: a device that this process computes on.
Result<c10::Device> usable_place(const std::string& name, std::int32_t index, bool deterministic);

/// Which of its machine's devices is a device of a node: the nodes that the head has started there
/// share them out; any other node has its machine to itself, also where it came in the place of one
/// of them.
std::int32_t device_number(DeviceSlot slot, bool is_heads_own, std::int32_t devices_per_node);

}  // namespace troupe::engine
