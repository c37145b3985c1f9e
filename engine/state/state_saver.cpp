#include "engine/state/state_saver.hpp"

#include <c10/util/Exception.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <thread>

#include "runtime/data/batches/background_thread.hpp"
#include "runtime/state/file_digest.hpp"
#include "runtime/state/safetensors.hpp"

namespace troupe::engine {

namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

/// Sums, because a number that is not finite makes its sum so; of pieces, which take little memory
/// in double precision, where finite ones of lower precision cannot overflow.
bool is_finite(const at::Tensor& tensor) {
  constexpr std::int64_t kPiece = 1 << 20;
  for (const at::Tensor& piece : tensor.flatten().split(kPiece))
    if (!std::isfinite(piece.sum(at::kDouble).item<double>())) return false;
  return true;
}

Status check_finite(const state::TensorMap& tensors) {
  for (const auto& [name, tensor] : tensors)
    if (!is_finite(tensor))
      return Error{Errc::internal,
                   "'" + name + "' is not finite, so that nothing could go on from it",
                   {},
                   "go on from an older checkpoint with a lower optimizer.lr"};
  return Done{};
}

}  // namespace

struct StateSaver::Share {
  std::filesystem::path path;
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  SavedShare result;
  bool copies = true;
  bool is_checked = false;
  std::atomic<bool> copied = false;
  std::atomic<bool> done = false;
};

void StateSaver::start(std::int64_t number, std::filesystem::path file,
                       std::vector<std::pair<std::string, at::Tensor>> tensors, bool copies,
                       bool is_checked) {
  share_ = std::make_shared<Share>();
  share_->path = std::move(file);
  share_->tensors = std::move(tensors);
  share_->result.number = number;
  share_->copies = copies;
  share_->is_checked = is_checked;
  // The thread may outlive this object: a file system that hangs would hold its owner's end up.
  std::thread([share = share_, wake = wake_] {
    save(*share, wake);
    share->done = true;
    wake();
  }).detach();
}

void StateSaver::save(Share& share, const std::function<void()>& wake) {
  SavedShare& result = share.result;
  state::TensorMap tensors;
  const auto begin = Clock::now();
  try {
    for (auto& [name, tensor] : share.tensors)
      tensors[name] = tensor.to(at::kCPU, tensor.scalar_type(), false, share.copies);
    if (share.is_checked) result.status = check_finite(tensors);
  } catch (const c10::AcceleratorError& error) {
    result.status = Error{
        Errc::internal,
        std::string("the device failed as its state was copied: ") + error.what_without_backtrace(),
        {},
        {}};
  } catch (const c10::Error& error) {
    result.status =
        Error{Errc::infeasible,
              std::string("no memory for a copy of the state: ") + error.what_without_backtrace(),
              {},
              "give the job more memory or more nodes"};
  }
  share.tensors.clear();
  result.copy_ms = milliseconds_since(begin);
  if (share.copies) {
    share.copied = true;
    wake();
  }
  if (!result.status.ok()) return;
  data::run_in_background();  // Training goes first from here on.
  const auto writing = Clock::now();
  state::Sha256 digest;
  result.status = state::write_safetensors(share.path, tensors, {}, &digest);
  tensors.clear();
  if (!result.status.ok()) return;
  std::error_code code;
  result.file = {share.path.filename().string(),
                 static_cast<std::int64_t>(std::filesystem::file_size(share.path, code)),
                 {}};
  result.file.sha256 = digest.text();
  result.write_ms = milliseconds_since(writing);
}

bool StateSaver::may_change() const { return !share_ || share_->copied || share_->done; }

std::optional<SavedShare> StateSaver::take() {
  if (!share_ || !share_->done) return std::nullopt;
  return std::exchange(share_, nullptr)->result;
}

}  // namespace troupe::engine
