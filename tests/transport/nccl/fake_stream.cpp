#include "tests/transport/nccl/fake_stream.hpp"

#include <atomic>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "transport/collectives/rank_order_sum.hpp"

namespace troupe::transport::testing {
namespace {

std::atomic<int> shared = 0;

struct Sum {
  std::vector<const void*> inputs;
  std::size_t count;
  Scalar scalar;
  void* output;
};

void add(void* argument) {
  const std::unique_ptr<Sum> sum(static_cast<Sum*>(argument));
  sum_in_rank_order(sum->inputs, sum->count, sum->scalar, sum->output);
}

/// Never waits for its work, so its handle lives as long as the process.
class FakeStream final : public NcclStream {
 public:
  FakeStream(const std::string& file, std::string device) : device_(std::move(device)) {
    void* (*make)();
    find_in(file, "fake_nccl_stream", make);
    find_in(file, "fake_nccl_stream_end", end_);
    find_in(file, "fake_nccl_stream_mark", mark_);
    find_in(file, "fake_nccl_stream_reached", reached_);
    find_in(file, "fake_nccl_stream_push", push_);
    handle_ = make();
  }
  ~FakeStream() override {
    // Work of a communicator that nobody aborts never ends: leave the thread with it.
    if (reached_(handle_, mark_(handle_)) != 0) end_(handle_);
  }

  std::string device() const override { return device_; }
  nccl::Stream handle() const override { return handle_; }
  Status make_current() override { return Done{}; }
  Result<std::uint64_t> mark() override { return mark_(handle_); }
  Result<bool> reached(std::uint64_t mark) override { return reached_(handle_, mark) != 0; }

  Result<std::shared_ptr<std::byte>> allocate(std::size_t bytes) override {
    // As LibTorch's memory, on which the order of its sums may depend.
    constexpr std::align_val_t kLine{64};
    auto* memory = static_cast<std::byte*>(::operator new(bytes + 1, kLine));
    std::memset(memory, 0xFF, bytes + 1);  // Whoever reads it too early sees NaN.
    return std::shared_ptr<std::byte>(memory,
                                      [](std::byte* held) { ::operator delete(held, kLine); });
  }

  Result<std::shared_ptr<std::byte>> allocate_shared(std::size_t bytes) override {
    ++shared;
    return allocate(bytes);
  }

  Status launch_sum(std::vector<const void*> inputs, std::size_t count, Scalar scalar,
                    void* output) override {
    push_(handle_, &add, new Sum{std::move(inputs), count, scalar, output});
    return Done{};
  }

 private:
  std::string device_;
  void* handle_;
  void (*end_)(void*);
  std::uint64_t (*mark_)(void*);
  int (*reached_)(void*, std::uint64_t);
  void (*push_)(void*, void (*)(void*), void*);
};

}  // namespace

std::shared_ptr<NcclStream> fake_stream(const std::string& file, const std::string& device) {
  return std::make_shared<FakeStream>(file, device);
}

int shared_allocations() { return shared; }

}  // namespace troupe::transport::testing
