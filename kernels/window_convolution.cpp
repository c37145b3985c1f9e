#include "kernels/window_convolution.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/device_copies.hpp"
#include "kernels/linear.hpp"

namespace troupe::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kTaps = 3;

// Which frame each tap of each output row reads, and its transpose: which taps read each frame.
// Both are [.., 3] indices into frames (or taps) extended by one entry of zeros at the end.
struct TapIndex {
  at::Tensor frame_of_tap;
  at::Tensor tap_of_frame;
};

TapIndex make_index(const std::vector<std::int64_t>& windows, std::int64_t stride) {
  std::int64_t frame_count = 0, row_count = 0;
  for (const auto window : windows) {
    frame_count += window;
    row_count += (window + stride - 1) / stride;
  }
  TapIndex index{at::empty({row_count, kTaps}, at::kLong),
                 at::empty({frame_count, kTaps}, at::kLong)};
  auto* frame_of_tap = index.frame_of_tap.mutable_data_ptr<std::int64_t>();
  auto* tap_of_frame = index.tap_of_frame.mutable_data_ptr<std::int64_t>();
  const auto no_tap = row_count * kTaps;
  for (std::int64_t i = 0; i < frame_count * kTaps; ++i) tap_of_frame[i] = no_tap;
  std::int64_t first_frame = 0, row = 0;
  for (const auto window : windows) {
    for (std::int64_t centre = 0; centre < window; centre += stride, ++row)
      for (std::int64_t tap = 0; tap < kTaps; ++tap) {
        const auto frame = centre + tap - 1;
        const bool inside = frame >= 0 && frame < window;
        frame_of_tap[row * kTaps + tap] = inside ? first_frame + frame : frame_count;
        if (inside) tap_of_frame[(first_frame + frame) * kTaps + tap] = row * kTaps + tap;
      }
    first_frame += window;
  }
  return index;
}

// Both directions are gathers, so the gradient is deterministic on every device.
at::Tensor gather_rows(const at::Tensor& rows, const at::Tensor& index) {
  const auto zeros = rows.new_zeros({1, rows.size(1)});
  return at::cat({rows, zeros}).index_select(0, to_device(index.flatten(), rows.device()));
}

struct Unfold : torch::autograd::Function<Unfold> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& frames,
                            const at::Tensor& frame_of_tap, const at::Tensor& tap_of_frame) {
    context->save_for_backward({tap_of_frame});
    const auto channels = frames.size(1);
    return gather_rows(frames, frame_of_tap)
        .view({-1, kTaps, channels})
        .transpose(1, 2)
        .reshape({-1, channels * kTaps});
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto tap_of_frame = context->get_saved_variables()[0];
    const auto channels = gradients[0].size(1) / kTaps;
    const auto taps =
        gradients[0].view({-1, channels, kTaps}).transpose(1, 2).reshape({-1, channels});
    return {gather_rows(taps, tap_of_frame).view({-1, kTaps, channels}).sum(1), {}, {}};
  }
};

}  // namespace

at::Tensor window_convolution(const at::Tensor& frames, const at::Tensor& weight,
                              const at::Tensor& bias, const std::vector<std::int64_t>& windows,
                              std::int64_t stride) {
  const auto index = make_index(windows, stride);
  TORCH_CHECK_VALUE(index.tap_of_frame.size(0) == frames.size(0), "windows hold ",
                    index.tap_of_frame.size(0), " frames, the input has ", frames.size(0));
  return linear(Unfold::apply(frames, index.frame_of_tap, index.tap_of_frame), weight, bias);
}

}  // namespace troupe::kernels
