// Tensors made on the host on their way to a device.

#pragma once

#include <ATen/core/Tensor.h>

namespace troupe::kernels {

/// Copies a host's tensor to a device without waiting for it where that is a GPU: through pinned
/// memory, which LibTorch keeps until the copy is done. To a CPU: the tensor itself.
at::Tensor to_device(const at::Tensor& host, at::Device device);

}  // namespace troupe::kernels
