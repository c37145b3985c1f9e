#include "tests/torch_catch.hpp"

#include "engine/execution/device_errors.hpp"

#include <c10/util/Exception.h>

#include <cstdlib>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>

#include "engine/execution/failed_device.hpp"
#include "tests/engine/apart_device.hpp"

namespace troupe::engine {
namespace {

c10::AcceleratorError cuda_error(int code) {
  return {{"launch", "kernel.cu", 1}, code, "CUDA error: of number " + std::to_string(code)};
}

TEST_CASE("a device whose own NCCL opens no group counts as failed, by no fault of a step",
          "[engine][errors]") {
  const c10::Device place = apart().place;
  const auto failed =
      failed_opening({Errc::timed_out, "rank 1 says: it hangs", {}, "look"}, place, 5);
  REQUIRE(failed);
  CHECK(failed->step == 0);
  CHECK(failed->epoch_number == 5);
  CHECK(failed->by_device);
  CHECK(failed->thrown == "rank 1 says: it hangs");
  CHECK(failed->error.fix == "look");
  for (const Errc code : {Errc::transport_failed, Errc::invalid_argument, Errc::unavailable})
    CHECK_FALSE(failed_opening({code, "rank 0 says: it hangs", {}, {}}, place, 5));
}

TEST_CASE("a device that is lost as groups open counts as failed, whatever NCCL says",
          "[engine][errors]") {
  const Error said{Errc::transport_failed, "rank 0 says: unhandled cuda error", {}, {}};
  const c10::Device place = apart().place;
  setenv("APART_CUDA_ERROR", "214", 1);
  const auto lost = failed_opening(said, place, 5);
  setenv("APART_CUDA_ERROR", "2", 1);
  const auto busy = failed_opening(said, place, 5);
  unsetenv("APART_CUDA_ERROR");
  REQUIRE(lost);
  CHECK(lost->by_device);
  CHECK(lost->step == 0);
  CHECK(lost->epoch_number == 5);
  CHECK(lost->error.message == "the device failed: CUDA error: number 214");
  CHECK(lost->error.fix == kDeviceFix);
  CHECK_FALSE(busy);  // Too little memory.
  CHECK_FALSE(failed_opening(said, place, 5));
  CHECK_FALSE(failed_opening(said, c10::kCPU, 5));
}

TEST_CASE("of what is thrown beside a step a lost device alone is done without",
          "[engine][errors]") {
  const auto lost = failed_device(std::make_exception_ptr(cuda_error(214)), 7);
  REQUIRE(lost);
  CHECK(lost->by_device);
  CHECK(lost->step == 0);
  CHECK(lost->epoch_number == 7);
  CHECK(lost->samples.empty());
  CHECK(lost->thrown == "the device failed: CUDA error: of number 214");
  CHECK(lost->error.code == Errc::internal);
  CHECK_FALSE(failed_device(std::make_exception_ptr(cuda_error(2)), 7));
  CHECK_FALSE(failed_device(std::make_exception_ptr(std::runtime_error("a defect")), 7));
  CHECK_FALSE(failed_device(std::make_exception_ptr(3), 7));
  CHECK_FALSE(failed_device(nullptr, 7));
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

TEST_CASE("memory that runs out is told from a device that fails", "[engine][errors]") {
  const c10::SourceLocation place{"allocate", "memory.cu", 1};
  CHECK(is_out_of_memory(cuda_error(2)));
  CHECK(is_out_of_memory(std::bad_alloc()));
  CHECK(is_out_of_memory(c10::OutOfMemoryError(place, "CUDA out of memory")));
  CHECK_FALSE(is_out_of_memory(cuda_error(214)));
  CHECK_FALSE(is_out_of_memory(c10::Error(place, "of another kind")));
  CHECK_FALSE(is_out_of_memory(std::runtime_error("out of memory")));
}

}  // namespace
}  // namespace troupe::engine
