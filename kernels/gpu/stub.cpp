// In the place of the kernels where there was no CUDA toolkit: nothing calls them, since `supports`
// says no.

#include <stdexcept>

#include "kernels/gpu/adamw.hpp"
#include "kernels/gpu/attention.hpp"
#include "kernels/gpu/rows.hpp"
#include "kernels/gpu/sums.hpp"
#include "kernels/gpu/support.hpp"

namespace troupe::kernels::gpu {

namespace {
[[noreturn]] void none() { throw std::logic_error("a kernel was called that this build lacks"); }
}  // namespace

void adamw(std::span<const AdamWTensor>, const AdamWPass&, Stream) { none(); }

void add_squares(const void*, std::int64_t, bool, double*, double*, Stream) { none(); }

bool supports(int) { return false; }

void attend_bf16(const Attention&, const HeadRows&, Stream) { none(); }
void attend_bf16_backward(const Attention&, const AttentionGradients&, Stream) { none(); }
void attend_plain(const Attention&, const HeadRows&, bool, Stream) { none(); }
void attend_plain_backward(const Attention&, const AttentionGradients&, bool, Stream) { none(); }
std::int64_t places_bf16(std::int64_t) { none(); }
Places places_bf16_backward(std::int64_t) { none(); }
Places places_plain(std::int64_t, bool) { none(); }

void rms_norm(const NormRows&, double, void*, Stream) { none(); }
void rms_norm_backward(const NormRows&, const void*, void*, void*, void*, Stream) { none(); }
void layer_norm(const LayerNormRows&, double, void*, Stream) { none(); }
void layer_norm_backward(const LayerNormRows&, const void*, void*, void*, void*, void*, Stream) {
  none();
}
void activate(Element, Unit, const void*, void*, std::int64_t, Stream) { none(); }
void activate_backward(Element, Unit, const void*, const void*, void*, std::int64_t, Stream) {
  none();
}
void swiglu(Element, const void*, const void*, void*, std::int64_t, Stream) { none(); }
void swiglu_backward(Element, const void*, const void*, const void*, void*, void*, std::int64_t,
                     Stream) {
  none();
}
void rotate(const TurnedHeads&, void*, Stream) { none(); }
void cross_entropy(const LogitRows&, void*, Stream) { none(); }
void cross_entropy_backward(const LogitRows&, const void*, void*, Stream) { none(); }

}  // namespace troupe::kernels::gpu
