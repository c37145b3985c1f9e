// Writes down when each kernel of a process ran on its GPUs, for idle_troupe.py.
//
// A library of its own, compiled where it is used. CUDA loads the one that CUDA_INJECTION64_PATH
// names into a process that uses a GPU. What it leaves: $KERNEL_TIMES.PID, a line "begin end" per
// kernel in nanoseconds of CUPTI's clock, in no order. Where there is no CUPTI it is an empty
// library, which idle_troupe.py does not make.

#if __has_include(<cupti.h>)

#include <cupti.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

constexpr std::size_t kBufferBytes = 256 << 10;  // Some thousand kernels.
constexpr std::uint32_t kFlushMs = 200;          // A process may end without a word.

std::FILE* file = nullptr;

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* records_max) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *bytes = *buffer == nullptr ? 0 : kBufferBytes;
  *records_max = 0;  // As many as fit.
}

// CUPTI calls it on one thread of its own.
void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                          std::size_t valid_bytes) {
  CUpti_Activity* record = nullptr;
  while (valid_bytes > 0 &&
         cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    if (kernel->end == 0) continue;  // No time was taken of it.
    std::fprintf(file, "%llu %llu\n", static_cast<unsigned long long>(kernel->start),
                 static_cast<unsigned long long>(kernel->end));
  }
  std::fflush(file);
  std::free(buffer);
}

bool begin() {
  const char* path = std::getenv("KERNEL_TIMES");
  if (path == nullptr) return false;
  file = std::fopen((path + ("." + std::to_string(getpid()))).c_str(), "w");
  return file != nullptr &&
         cuptiActivityRegisterCallbacks(give_buffer, take_buffer) == CUPTI_SUCCESS &&
         cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) == CUPTI_SUCCESS &&
         cuptiActivityFlushPeriod(kFlushMs) == CUPTI_SUCCESS;
}

}  // namespace

/// CUDA calls it once, as it begins; 0 would be a failure.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  if (!begin()) std::fprintf(stderr, "kernel_times: no kernel will be written down\n");
  return 1;
}

#endif
