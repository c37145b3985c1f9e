#include "tests/torch_catch.hpp"

#include "engine/execution/device_errors.hpp"

#include <c10/util/Exception.h>

#include <new>
#include <stdexcept>
#include <string>

#include "engine/execution/nccl_device.hpp"

namespace troupe::engine {
namespace {

c10::AcceleratorError cuda_error(int code) {
  return {{"launch", "kernel.cu", 1}, code, "CUDA error: of number " + std::to_string(code)};
}

TEST_CASE("a device whose own NCCL opens no group counts as failed, by no fault of a step",
          "[engine][errors]") {
  const auto failed = failed_opening({Errc::timed_out, "rank 1 says: it hangs", {}, "look"}, 5);
  REQUIRE(failed);
  CHECK(failed->step == 0);
  CHECK(failed->epoch_number == 5);
  CHECK(failed->by_device);
  CHECK(failed->thrown == "rank 1 says: it hangs");
  CHECK(failed->error.fix == "look");
  for (const Errc code : {Errc::transport_failed, Errc::invalid_argument, Errc::unavailable})
    CHECK_FALSE(failed_opening({code, "rank 0 says: it hangs", {}, {}}, 5));
}

TEST_CASE("a device is lost by errors that stay, and by its hardware", "[engine][errors]") {
  // ECC, an illegal address, a failed assertion, a misaligned address, a failed launch.
  for (const int code : {214, 700, 710, 716, 719, 999}) {
    CAPTURE(code);
    CHECK(is_device_lost(cuda_error(code)));
  }
  // An invalid value, no memory, a bad configuration, no kernel for this GPU, a handle that is
  // none, too many registers: the next launch may do.
  for (const int code : {1, 2, 9, 209, 400, 701}) {
    CAPTURE(code);
    CHECK_FALSE(is_device_lost(cuda_error(code)));
  }
  CHECK_FALSE(is_device_lost(std::runtime_error("CUDA error: an illegal memory access")));
  CHECK_FALSE(is_device_lost(std::bad_alloc()));
}

TEST_CASE("what a device's library says is told without where in it that was", "[engine][errors]") {
  CHECK(words_of(cuda_error(700)) == "CUDA error: of number 700");
  const c10::Error long_one(c10::SourceLocation{"launch", "kernel.cu", 1},
                            "no room\nCompile with debugging");
  CHECK(words_of(long_one) == "no room");
  CHECK(words_of(std::runtime_error("of another library\nmore")) == "of another library");
}

}  // namespace
}  // namespace troupe::engine
