// What an element of a parameter weighs: its value, and all that training keeps beside it.
//
// Pure; thread-safe.

#pragma once

#include <cstdint>

#include "runtime/vocabulary/model_config.hpp"
#include "runtime/vocabulary/model_state.hpp"

namespace troupe::scheduler {

/// Bytes that one element of a parameter takes in a shard of this kind: 0 where there is none.
std::int64_t bytes_per_element(StateKind kind, Dtype dtype);

/// Bytes of one element of parameters and rows.
double bytes_per_element(Dtype dtype);

/// Bytes of one element of a gradient that is being added up: fp32, for fp64 fp64.
double gradient_bytes_per_element(Dtype dtype);

/// Bytes that training keeps per element that trains: parameter, gradient, AdamW's two moments, and
/// for bf16 an fp32 master copy (gradients and moments are fp32 too). fp32: 16, bf16: 18, fp64: 32.
double state_bytes_per_trained_element(Dtype dtype);

/// Of these, what its update alone needs: master and moments. fp32: 8, bf16: 12, fp64: 16.
double moment_bytes_per_element(Dtype dtype);

}  // namespace troupe::scheduler
