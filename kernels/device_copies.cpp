#include "kernels/device_copies.hpp"

#include <ATen/ops/empty.h>

namespace troupe::kernels {

at::Tensor to_device(const at::Tensor& host, at::Device device) {
  if (!device.is_cuda() || !host.is_cpu()) return host.to(device);
  auto room = at::empty(host.sizes(), host.options().pinned_memory(true));
  room.copy_(host);
  return room.to(device, /*non_blocking=*/true);
}

}  // namespace troupe::kernels
