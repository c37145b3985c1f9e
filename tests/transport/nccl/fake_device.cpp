#include "tests/transport/nccl/fake_device.hpp"

#include <dlfcn.h>

#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "transport/collectives/rank_order_sum.hpp"

namespace troupe::transport::testing {
namespace {

void* symbol(const std::string& file, const char* name) {
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const found = library != nullptr ? dlsym(library, name) : nullptr;
  if (found == nullptr) throw std::runtime_error(file + " has no " + name);
  return found;
}

template <class Function>
void find(const std::string& file, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(symbol(file, name));
}

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

}  // namespace

/// Never waits for its work, so its handle lives as long as the process.
class FakeNccl::Stream final : public NcclStream {
 public:
  Stream(const std::string& file, std::string device) : device_(std::move(device)) {
    void* (*make)();
    find(file, "fake_nccl_stream", make);
    find(file, "fake_nccl_stream_end", end_);
    find(file, "fake_nccl_stream_mark", mark_);
    find(file, "fake_nccl_stream_reached", reached_);
    find(file, "fake_nccl_stream_push", push_);
    handle_ = make();
  }
  ~Stream() override {
    // Work of a communicator that nobody aborts never ends: leave the thread with it.
    if (reached_(handle_, mark_(handle_)) != 0) end_(handle_);
  }

  std::string device() const override { return device_; }
  nccl::Stream handle() const override { return handle_; }
  Status make_current() override { return Done{}; }
  Result<std::uint64_t> mark() override { return mark_(handle_); }
  Result<bool> reached(std::uint64_t mark) override { return reached_(handle_, mark) != 0; }

  Result<std::shared_ptr<std::byte>> allocate(std::size_t bytes) override {
    auto* memory = new std::byte[bytes + 1];
    std::memset(memory, 0xFF, bytes + 1);  // Whoever reads it too early sees NaN.
    return std::shared_ptr<std::byte>(memory, std::default_delete<std::byte[]>());
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

FakeNccl::FakeNccl(const std::string& name) {
  auto loaded = NcclLibrary::load(file(name));
  if (!loaded) throw std::runtime_error(loaded.error().message);
  library_ = loaded.value();
  find(file(name), "fake_nccl_script", script_);
  find(file(name), "fake_nccl_live", live_);
  find(file(name), "fake_nccl_misuses", misuses_);
  find(file(name), "fake_nccl_first_misuse", first_misuse_);
  find(file(name), "fake_nccl_calls", calls_);
}

std::string FakeNccl::file(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / ("lib" + name + ".so");
}

std::shared_ptr<NcclStream> FakeNccl::stream(const std::string& device) const {
  // Of the library that this one is: found again by its version.
  const auto* name = library_->can_shrink() ? "fake_nccl" : "fake_nccl_old";
  return std::make_shared<Stream>(file(name), device);
}

NcclLimits short_limits() {
  return {std::chrono::milliseconds(150), std::chrono::milliseconds(1000)};
}

}  // namespace troupe::transport::testing
