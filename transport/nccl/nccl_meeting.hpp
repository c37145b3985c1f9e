// What the ranks of an NCCL group tell each other before and after NCCL: over the transport that
// connects their nodes anyway, so that a lost node shows here at once.
//
// Every rank sees the same words of all ranks, so all decide the same without being told.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/collectives/group.hpp"
#include "transport/nccl/nccl_abi.hpp"

namespace troupe::transport {

/// What a rank brings along.
struct NcclHello {
  std::uint32_t magic = 0x4C43434E;
  std::int32_t version = 0;  ///< Of its library.
  EpochNumber generation = 0;
  std::uint32_t group_id = 0;
  std::int32_t parent_rank = -1;      ///< In the group that it comes from; -1: it can shrink none.
  EpochNumber parent_generation = 0;  ///< Of that group.
  std::uint32_t parent_id = 0;
  std::int32_t parent_size = 0;
  char device[64] = {};  ///< `NcclStream::device`.
};

/// How an attempt went at one rank.
struct NcclOutcome {
  enum class Kind : std::uint32_t {
    well,
    waited,    ///< It waited in vain, perhaps for a rank that failed.
    stuck,     ///< Its call of NCCL did not return, though it promises not to wait.
    failed,    ///< Another attempt may do.
    hopeless,  ///< NCCL does not let go of something: no attempt will do.
  };
  Kind kind = Kind::well;
  char why[252] = {};  ///< Where it failed.
};

/// `at_least`: what is known of it where it failed.
NcclOutcome outcome_of(const Status& status,
                       NcclOutcome::Kind at_least = NcclOutcome::Kind::waited);

class NcclMeeting {
 public:
  /// Errors: as `Group::create`.
  static Result<NcclMeeting> create(Transport& transport, GroupOptions options);

  // Errors of all calls: as `Collectives`.

  /// Everybody's hello by rank. Errors besides: invalid_argument: ranks that NCCL would refuse, or
  /// that do not belong together: another version, generation or group, or one device twice.
  Result<std::vector<NcclHello>> greet(const NcclHello& own, Deadline deadline);

  /// Rank 0's id for attempt `attempt`. Errors besides: why rank 0 has none, at rank 0 itself as
  /// `own` says it; timed_out at the others, which wait for it in vain. An id of another attempt.
  Result<nccl::UniqueId> share_id(const Result<nccl::UniqueId>& own, std::int32_t attempt,
                                  Deadline deadline);

  /// How it went at all ranks.
  Result<std::vector<NcclOutcome>> compare(const NcclOutcome& own, Deadline deadline);

  /// One number of each rank.
  Result<std::vector<std::int64_t>> exchange_numbers(std::int64_t own, Deadline deadline);

 private:
  template <class Word>
  Result<std::vector<Word>> words_of_all(const Word& own, Deadline deadline);

  explicit NcclMeeting(Group group) : group_(std::move(group)) {}

  Group group_;
};

/// Whether all come from the same communicator, in its order, and some of its ranks do not come, so
/// that it can be shrunk to them.
bool can_all_shrink(const std::vector<NcclHello>& hellos);

}  // namespace troupe::transport
