#include "kernels/gpu/tensors.hpp"

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdint>

#include "kernels/gpu/support.hpp"

namespace troupe::kernels::gpu {

bool takes(const at::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  return tensor.is_cuda() && supports(tensor.get_device()) &&
         (type == at::kBFloat16 || type == at::kFloat || type == at::kDouble);
}

Element element_of(const at::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  return type == at::kBFloat16 ? Element::bf16 : type == at::kFloat ? Element::fp32 : Element::fp64;
}

at::ScalarType wide_type(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor aligned_heads(const at::Tensor& heads) {
  const bool fits = heads.stride(2) == 1 && heads.stride(0) % 8 == 0 && heads.stride(1) % 8 == 0 &&
                    reinterpret_cast<std::uintptr_t>(heads.const_data_ptr()) % 16 == 0;
  return fits ? heads : heads.clone(at::MemoryFormat::Contiguous);
}

Place::Place(const at::Tensor& tensor)
    : guard(tensor.device()),
      stream(c10::impl::VirtualGuardImpl(tensor.device().type())
                 .getStream(tensor.device())
                 .native_handle()) {}

}  // namespace troupe::kernels::gpu
