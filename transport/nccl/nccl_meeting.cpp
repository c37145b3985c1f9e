#include "transport/nccl/nccl_meeting.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "transport/nccl/nccl_library.hpp"

namespace troupe::transport {
namespace {

/// What rank 0 tells of the id.
struct IdWord {
  std::int32_t attempt = 0;
  NcclOutcome outcome;
  nccl::UniqueId id;
};

Error at_rank(std::size_t rank, Errc code, const std::string& what) {
  return {code, "rank " + std::to_string(rank) + " " + what, "", ""};
}

std::string text_of(const char* text, std::size_t size) { return {text, strnlen(text, size)}; }

Status check(const std::vector<NcclHello>& hellos, std::size_t own_rank) {
  const auto& own = hellos[own_rank];
  for (std::size_t rank = 0; rank < hellos.size(); ++rank) {
    const auto& other = hellos[rank];
    if (other.magic != own.magic || other.generation != own.generation ||
        other.group_id != own.group_id) {
      return at_rank(rank, Errc::invalid_argument,
                     "meets for group " + std::to_string(other.group_id) + " of generation " +
                         std::to_string(other.generation) + ", but this is group " +
                         std::to_string(own.group_id) + " of generation " +
                         std::to_string(own.generation));
    }
    if (other.version != hellos[0].version) {
      return at_rank(rank, Errc::invalid_argument,
                     "has NCCL " + nccl_version_text(other.version) + ", but rank 0 has " +
                         nccl_version_text(hellos[0].version));
    }
    for (std::size_t earlier = 0; earlier < rank; ++earlier) {
      const auto device = text_of(other.device, sizeof other.device);
      if (device != text_of(hellos[earlier].device, sizeof other.device)) continue;
      return at_rank(rank, Errc::invalid_argument,
                     "and rank " + std::to_string(earlier) + " share the device " + device +
                         ", which NCCL refuses");
    }
  }
  return Done{};
}

}  // namespace

NcclOutcome outcome_of(const Status& status, NcclOutcome::Kind at_least) {
  NcclOutcome outcome;
  if (status) return outcome;
  const bool has_waited = status.error().code == Errc::timed_out;
  outcome.kind =
      std::max(at_least, has_waited ? NcclOutcome::Kind::waited : NcclOutcome::Kind::failed);
  const auto& why = status.error().message;
  std::memcpy(outcome.why, why.data(), std::min(why.size(), sizeof outcome.why - 1));
  return outcome;
}

Result<NcclMeeting> NcclMeeting::create(Transport& transport, GroupOptions options) {
  auto group = Group::create(transport, std::move(options));
  if (!group) return group.error();
  return NcclMeeting(std::move(group).value());
}

template <class Word>
Result<std::vector<Word>> NcclMeeting::words_of_all(const Word& own, Deadline deadline) {
  const auto ranks = static_cast<std::size_t>(group_.size());
  // Owned jointly: after a failure the transport may still write to them.
  const auto words = std::make_shared<std::vector<Word>>(ranks);
  auto& place = (*words)[static_cast<std::size_t>(group_.rank())];
  place = own;
  const std::vector<std::size_t> bytes(ranks, sizeof(Word));
  const auto status = group_.all_gather({&place, sizeof(Word), words}, bytes,
                                        {words->data(), ranks * sizeof(Word), words}, deadline);
  if (!status) return status.error();
  return *words;
}

Result<std::vector<NcclHello>> NcclMeeting::greet(const NcclHello& own, Deadline deadline) {
  auto hellos = words_of_all(own, deadline);
  if (!hellos) return hellos;
  const auto status = check(hellos.value(), static_cast<std::size_t>(group_.rank()));
  if (!status) return status.error();
  return hellos;
}

Result<nccl::UniqueId> NcclMeeting::share_id(const Result<nccl::UniqueId>& own,
                                             std::int32_t attempt, Deadline deadline) {
  const auto word = std::make_shared<IdWord>();
  word->attempt = attempt;
  if (own.ok()) {
    word->id = own.value();
  } else {
    word->outcome = outcome_of(own.error());
  }
  const auto status = group_.broadcast({word.get(), sizeof(IdWord), word}, 0, deadline);
  if (!status) return status.error();
  if (word->attempt != attempt) {
    return at_rank(0, Errc::internal,
                   "opens attempt " + std::to_string(word->attempt) + ", this one attempt " +
                       std::to_string(attempt));
  }
  if (word->outcome.kind != NcclOutcome::Kind::well) {
    if (!own) return own.error();
    return Error{Errc::timed_out, word->outcome.why, "", ""};
  }
  return word->id;
}

Result<std::vector<NcclOutcome>> NcclMeeting::compare(const NcclOutcome& own, Deadline deadline) {
  return words_of_all(own, deadline);
}

Result<std::vector<std::int64_t>> NcclMeeting::exchange_numbers(std::int64_t own,
                                                                Deadline deadline) {
  return words_of_all(own, deadline);
}

bool can_all_shrink(const std::vector<NcclHello>& hellos) {
  // NCCL refuses to shrink by no rank.
  if (std::ssize(hellos) >= hellos.front().parent_size) return false;
  const auto& first = hellos.front();
  std::int32_t before = -1;
  for (const auto& hello : hellos) {
    if (hello.parent_rank <= before || hello.parent_generation != first.parent_generation ||
        hello.parent_id != first.parent_id || hello.parent_size != first.parent_size) {
      return false;
    }
    before = hello.parent_rank;
  }
  return true;
}

}  // namespace troupe::transport
