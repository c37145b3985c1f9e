#include "scheduler/cost/state_bytes.hpp"

namespace troupe::scheduler {

std::int64_t bytes_per_element(StateKind kind, Dtype dtype) {
  const std::int64_t wide = dtype == Dtype::fp64 ? 8 : 4;
  switch (kind) {
    case StateKind::value: return dtype == Dtype::bf16 ? 2 : wide;
    case StateKind::master: return dtype == Dtype::bf16 ? wide : 0;
    case StateKind::moments: return 2 * wide;
  }
  return 0;
}

double bytes_per_element(Dtype dtype) {
  return static_cast<double>(bytes_per_element(StateKind::value, dtype));
}

double gradient_bytes_per_element(Dtype dtype) {  // In the type of either moment.
  return static_cast<double>(bytes_per_element(StateKind::moments, dtype)) / 2;
}

double state_bytes_per_trained_element(Dtype dtype) {
  return gradient_bytes_per_element(dtype) +
         static_cast<double>(bytes_per_element(StateKind::value, dtype)) +
         moment_bytes_per_element(dtype);
}

double moment_bytes_per_element(Dtype dtype) {
  return static_cast<double>(bytes_per_element(StateKind::master, dtype) +
                             bytes_per_element(StateKind::moments, dtype));
}

}  // namespace troupe::scheduler
