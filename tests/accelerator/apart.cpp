// "apart": a device as LibTorch knows GPUs, made of a processor, with memory that no processor can
// reach. A plug-in: `[plugins] libraries = ["apart.so"]`, `cluster.device = "apart"`.
//
// Whoever forgets where a tensor lies ends with a segmentation fault or LibTorch's error instead of
// waiting for a GPU that shows it. Operators compute on copies, on the thread that calls; copies to
// pinned host memory arrive when somebody waits for an event behind them, and those from there too
// where they are put on another stream than the default one.

#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/plugins/entry_point.hpp"
#include "tests/accelerator/apart_memory.hpp"
#include "tests/accelerator/apart_stream.hpp"

namespace {

using namespace troupe::apart;

constexpr auto kApart = c10::DeviceType::PrivateUse1;
constexpr c10::DeviceIndex kDevices = 8;
constexpr c10::StreamId kStreams = 32;  // Of a device, handed out in turn, as CUDA's are.

thread_local c10::DeviceIndex current = 0;
/// Of each device the stream that the thread puts on what it does.
thread_local std::array<c10::StreamId, kDevices> streams{};

c10::StreamId& stream_of(c10::DeviceIndex device) {
  return streams[static_cast<std::size_t>(device < 0 ? current : device)];
}

/// Fails as with CUDA's error of the number in this variable, where a test wants that.
void fail_as_asked(const char* variable) {
  const char* number = std::getenv(variable);
  if (number != nullptr)
    throw c10::AcceleratorError({"device", "apart.cpp", 1}, std::atoi(number),
                                "CUDA error: number " + std::string(number));
}

// ---- memory

struct Block {
  void* address;
  std::int64_t bytes;
  c10::Device place;
  std::vector<c10::Stream> used_on = {};  ///< Beside the one that it was allocated on.

  ~Block() {
    c10::reportMemoryUsageToProfiler(address, -bytes, 0, 0, place);
    Memory::of_process().give_back(address);
  }
};

void give_back(void* context) {
  const std::shared_ptr<Block> block(static_cast<Block*>(context));
  for (const c10::Stream& stream : block->used_on)
    Stream::of(stream.device_index(), stream.id()).hold(block);
}

class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device place(kApart, current);
    if (bytes == 0) return {nullptr, place};
    void* address = Memory::of_process().take(bytes);
    const auto size = static_cast<std::int64_t>(bytes);
    c10::reportMemoryUsageToProfiler(address, size, 0, 0, place);
    return {address, new Block{address, size, place}, give_back, place};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(Memory::of_process().open(to), Memory::of_process().open(from), bytes);
  }
};

Allocator allocator;

/// Host memory; that it is pinned shows in `is_pinned` alone.
class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    fail_as_asked("APART_PINNED_ERROR");
    return c10::GetCPUAllocator()->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

PinnedAllocator pinned;

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
};

// ---- devices, streams and events

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kApart; }
  c10::Device exchangeDevice(c10::Device place) const override {
    const c10::Device before = getDevice();
    setDevice(place);
    return before;
  }
  c10::Device getDevice() const override { return {kApart, current}; }
  void setDevice(c10::Device place) const override {
    if (place.index() >= 0) current = place.index();
  }
  void uncheckedSetDevice(c10::Device place) const noexcept override { setDevice(place); }
  c10::Stream getStream(c10::Device place) const override {
    const c10::DeviceIndex device = place.index() < 0 ? current : place.index();
    return c10::Stream(c10::Stream::UNSAFE, {kApart, device}, stream_of(device));
  }
  c10::Stream getDefaultStream(c10::Device place) const override {
    return c10::Stream(c10::Stream::DEFAULT, {kApart, place.index() < 0 ? current : place.index()});
  }
  c10::Stream getNewStream(c10::Device place, int) const override {
    static std::array<std::atomic<c10::StreamId>, kDevices> handed_out{};
    const c10::DeviceIndex device = place.index() < 0 ? current : place.index();
    const c10::StreamId next = handed_out[static_cast<std::size_t>(device)]++ % kStreams;
    return c10::Stream(c10::Stream::UNSAFE, {kApart, device}, 1 + next);
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return reinterpret_cast<void*>(stream.id());
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    stream_of(stream.device_index()) = stream.id();
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag) const override {
    fail_as_asked("APART_CUDA_ERROR");
    if (*event == nullptr) *event = new Event;
    *static_cast<Event*>(*event) = {stream.device_index(), stream.id(),
                                    Stream::of(stream.device_index(), stream.id()).mark(),
                                    /*is_new=*/true};
  }
  /// Operators are done when they return; what they read must be there before.
  void block(void* event, const c10::Stream&) const override {
    if (event == nullptr) return;
    const auto* marked = static_cast<Event*>(event);
    Stream::of(marked->device, marked->stream).come_to(*marked->mark);
  }
  /// Says no to the first who asks, as a GPU that is at work does.
  bool queryEvent(void* event) const override {
    fail_as_asked("APART_CUDA_ERROR");
    if (event != nullptr && std::exchange(static_cast<Event*>(event)->is_new, false)) return false;
    synchronizeEvent(event);
    return true;
  }
  bool queryStream(const c10::Stream& stream) const override {
    synchronizeStream(stream);
    return true;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    Stream::of(stream.device_index(), stream.id()).wait_for_all();
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    const auto* marked = static_cast<Event*>(event);
    Stream::of(marked->device, marked->stream).wait_for(*marked->mark);
  }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    Stream::wait_for_all_of(device);
  }
  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& stream) const override {
    if (memory.get_deleter() == give_back)
      static_cast<Block*>(memory.get_context())->used_on.push_back(stream);
  }

 private:
  struct Event {
    int device = 0;
    c10::StreamId stream = 0;
    std::shared_ptr<Stream::Mark> mark;
    bool is_new = true;
  };
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// ---- operators

at::Tensor empty(c10::SymIntArrayRef shape, std::optional<at::ScalarType> type,
                 std::optional<at::Layout>, std::optional<at::Device> place, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(place.value_or(c10::Device(kApart, current)));
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(shape), &allocator,
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   type.value_or(at::kFloat), format);
}

at::Tensor empty_strided(c10::SymIntArrayRef shape, c10::SymIntArrayRef strides,
                         std::optional<at::ScalarType> type, std::optional<at::Layout>,
                         std::optional<at::Device> place, std::optional<bool>) {
  const c10::DeviceGuard guard(place.value_or(c10::Device(kApart, current)));
  return at::detail::empty_strided_generic(
      C10_AS_INTARRAYREF_SLOW(shape), C10_AS_INTARRAYREF_SLOW(strides), &allocator,
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type.value_or(at::kFloat));
}

/// The same elements where a processor can reach them; alive as long as `tensor`.
at::Tensor opened(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  void* at = tensor.numel() == 0 ? nullptr : Memory::of_process().open(tensor.const_data_ptr());
  return at::from_blob(
      at, tensor.sizes(), tensor.strides(), [](void*) {}, at::TensorOptions(tensor.scalar_type()));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const c10::Device place = from.is_cpu() ? to.device() : from.device();
  const c10::StreamId id = stream_of(place.index());
  Stream& stream = Stream::of(place.index(), id);
  const bool is_late = non_blocking && to.is_contiguous() &&
                       from.scalar_type() == to.scalar_type() &&
                       (to.is_cpu() || (from.is_cpu() && id != 0));
  // In order: whoever copies without a wait finds what came before.
  if (!is_late && (!non_blocking || !to.is_cpu())) stream.wait_for_all();
  if (is_late) {
    const at::Tensor plain = opened(from).contiguous();
    const auto* begin = static_cast<const std::byte*>(plain.const_data_ptr());
    stream.copy_later(opened(to), {begin, begin + plain.nbytes()}, to);
    return to;
  }
  opened(to).copy_(opened(from));
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) to.resize_(from.sizes());
  return copy_from(from, to, false);
}

const at::Tensor& resize(const at::Tensor& tensor, c10::SymIntArrayRef shape,
                         std::optional<at::MemoryFormat>) {
  const auto sizes = C10_AS_INTARRAYREF_SLOW(shape);
  auto* inside = tensor.unsafeGetTensorImpl();
  const auto needed =
      static_cast<std::size_t>(c10::multiply_integers(sizes)) * tensor.element_size() +
      static_cast<std::size_t>(tensor.storage_offset()) * tensor.element_size();
  if (needed > inside->unsafe_storage().nbytes()) {
    const c10::DeviceGuard guard(tensor.device());
    inside->unsafe_storage().set_data_ptr_noswap(allocator.allocate(needed));
    inside->unsafe_storage().set_nbytes(needed);
  }
  inside->set_sizes_contiguous(sizes);
  return tensor;
}

at::Tensor as_strided(const at::Tensor& tensor, c10::SymIntArrayRef shape,
                      c10::SymIntArrayRef strides, std::optional<c10::SymInt> offset) {
  std::optional<std::int64_t> begin;
  if (offset) begin = offset->expect_int();
  return at::native::as_strided_tensorimpl(tensor, C10_AS_INTARRAYREF_SLOW(shape),
                                           C10_AS_INTARRAYREF_SLOW(strides), begin);
}

at::Tensor view(const at::Tensor& tensor, c10::SymIntArrayRef shape) {
  return at::native::view(tensor, C10_AS_INTARRAYREF_SLOW(shape));
}

at::Tensor reshape_alias(const at::Tensor& tensor, c10::SymIntArrayRef shape,
                         c10::SymIntArrayRef strides) {
  return at::native::as_strided_tensorimpl(tensor, C10_AS_INTARRAYREF_SLOW(shape),
                                           C10_AS_INTARRAYREF_SLOW(strides), std::nullopt);
}

/// Over memory that is there, which is never too small: LibTorch's own, which asks for no device.
at::Tensor& set_storage(at::Tensor& tensor, at::Storage memory, c10::SymInt offset,
                        c10::SymIntArrayRef shape, c10::SymIntArrayRef strides) {
  return at::native::set_storage_cpu_(tensor, std::move(memory), offset.expect_int(),
                                      C10_AS_INTARRAYREF_SLOW(shape),
                                      C10_AS_INTARRAYREF_SLOW(strides));
}

/// As on a GPU, a host tensor beside one of the device is refused; a single number is not.
void refuse_host_tensors(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const auto check = [&](const at::Tensor& tensor) {
    TORCH_CHECK(!tensor.defined() || !tensor.is_cpu() || tensor.dim() == 0,
                "Expected all tensors to be on the same device, but ", op.schema().name(),
                " has one of shape ", tensor.sizes(), " on a CPU");
  };
  for (const auto& value : torch::jit::last(stack, op.schema().arguments().size())) {
    if (value.isTensor()) check(value.toTensor());
    if (value.isTensorList())
      for (const at::Tensor& tensor : value.toTensorVector()) check(tensor);
  }
}

void on_processor(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  refuse_host_tensors(op, *stack);
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("_copy_from", copy_from);
  library.impl("_copy_from_and_resize", copy_from_and_resize);
  library.impl("resize_", resize);
  library.impl("as_strided", as_strided);
  library.impl("set_.source_Storage_storage_offset", set_storage);
  library.impl("view", view);
  library.impl("_reshape_alias", reshape_alias);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&on_processor>());
}

troupe::Status register_all() {
  c10::register_privateuse1_backend("apart");
  c10::SetAllocator(kApart, &allocator);
  if (!at::isPrivateUse1HooksRegistered()) at::RegisterPrivateUse1HooksInterface(new Hooks);
  return troupe::Done{};
}

}  // namespace

TROUPE_PLUGIN(register_all)
