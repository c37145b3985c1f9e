// The ranks of a group over NCCL: sums and rows in the memory of GPUs, and the next generation of
// the group after a loss.
//
// A group belongs to one thread, but for `lose`; the calls of `Collectives` wait for the device, at
// most until their deadline, rows do not. Whatever NCCL does, every call ends by its deadline (or a
// moment later): the watchdog gives the communicator up, and the group is broken. What a broken
// group can do is `rebuild`, at all ranks that are left.
//
// Two ranks need two GPUs. Groups of one GPU have a stream each and one `NcclContext`, so that one
// thread calls NCCL for it, in the same order at all ranks where they call in the same order.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/collectives/collectives.hpp"
#include "transport/nccl/nccl_communicator.hpp"
#include "transport/nccl/nccl_meeting.hpp"

namespace troupe::transport {

/// In which order sums run.
enum class NcclSums : std::uint8_t {
  in_rank_order,  ///< ((x0 + x1) + x2) ...: the bits of `Group`, of every run and every layout.
  as_nccl_likes,  ///< NCCL's rings and trees: in one pass, with bits that depend on size and
                  ///< layout.
};

/// Elements of the longest sum of a warm-up: 32 MiB, and in rank order as much beside it at most.
/// From there on NCCL goes the same way as a rule, and all of 2,000 ranks have a shard.
inline constexpr std::size_t kWarmUpElementsMax = std::size_t{8} << 20;

/// How long after its deadline an operation may end: the watchdog's own way.
inline constexpr std::chrono::seconds kNcclGrace{1};

struct NcclGroupOptions {
  std::string name;            ///< For errors and NCCL's log: "sums of llm.layers".
  std::vector<Peer> members;   ///< Node of each rank.
  std::int32_t rank = -1;      ///< Own position in `members`.
  EpochNumber generation = 0;  ///< Of the configuration.
  /// The same at all ranks; different for groups of one generation, those in host memory included.
  std::uint32_t group_id = 0;
  NcclSums sums = NcclSums::in_rank_order;
  /// Recovery derives the next communicator from the broken one where ranks are gone and all others
  /// can; otherwise, and where that fails, it opens a new one.
  bool may_shrink = true;
  /// How long NCCL may take to open a communicator before all ranks give up and try again.
  std::chrono::milliseconds attempt{20000};
  std::int32_t attempts_max = 3;  ///< >= 1.
};

/// Rows for a rank, and from one. Memory of the device.
struct NcclRowsTo {
  std::int32_t rank = -1;
  ConstBuffer data;
};
struct NcclRowsFrom {
  std::int32_t rank = -1;
  MutableBuffer data;
};

class NcclGroup final : public Collectives {
 public:
  using Made = Result<std::unique_ptr<NcclGroup>>;

  /// Opens a group; all its ranks call it at about the same time. The transport connects the nodes
  /// and must outlive the group.
  /// Errors: invalid_argument: as `Group::create`; ranks with other versions, groups or
  /// generations, or on one GPU. With the rank that could not and why: timed_out: this one, by
  /// itself; transport_failed: another one, or what NCCL says. Where all ranks only waited nobody
  /// knows whose NCCL it is, and the first one counts.
  static Made create(Transport& transport, std::shared_ptr<NcclContext> context,
                     std::shared_ptr<NcclStream> stream, NcclGroupOptions options,
                     Deadline deadline);

  /// The group of a later generation, from the ranks that are left (they keep their order, `old`
  /// shrinks where some are gone) or others too (they call `create`). `old` may be broken, and is
  /// gone afterwards. Errors: as `create`, and invalid_argument: a generation that is not later.
  static Made rebuild(std::unique_ptr<NcclGroup> old, std::vector<Peer> members, std::int32_t rank,
                      EpochNumber generation, Deadline deadline);

  /// The same, and the later group is otherwise as `options` say: it may have another name, number
  /// and order of sums. Its generation must be later than that of `old`. Errors: as `rebuild`.
  static Made succeed(std::unique_ptr<NcclGroup> old, NcclGroupOptions options, Deadline deadline);

  /// Splits off smaller groups: all ranks call it; those of one `color` (>= 0) form a group in the
  /// order of their ranks, those without one get null.
  /// Errors: as `create`; the group itself is broken afterwards.
  Made split(std::optional<std::int32_t> color, std::uint32_t group_id, std::string name,
             std::shared_ptr<NcclStream> stream, Deadline deadline);

  /// Gives NCCL's work up at once.
  ~NcclGroup() override;

  /// `all_reduce` that does not wait: `data` are the sum when the operation has ended well, and are
  /// held until NCCL has let go of them however it ends. Errors: as `all_reduce`.
  Operation begin_all_reduce(MutableBuffer data, Scalar scalar, Deadline deadline);

  /// Connects the ranks for sums of these lengths, in elements of fp32, by some that nobody reads:
  /// NCCL connects ranks as they first need each other, for which it takes memory, and may wait for
  /// what runs on the device. All ranks call it with the same lengths, and first of all; they have
  /// to be there at about the same time. Of several groups of a device one is warmed up after the
  /// other, in one order at all ranks: NCCL need not run two first calls side by side. Has no
  /// number among the calls; does not wait. Errors: as `all_reduce`; infeasible: there is no room.
  Operation begin_warm_up(std::vector<std::size_t> lengths, Deadline deadline);

  /// How a first call went at all ranks, of which each tells its own outcome, whatever that is: a
  /// warm-up, or rows. Blocks; at most until the deadline, and no more than a moment where this
  /// rank knows better than that it has waited. Errors: what it knows; else with the rank that
  /// could not and why, as `create`: timed_out: this one, by itself, or the first of those that
  /// only waited; transport_failed: another one, or ranks do not say how it went.
  Status compare(const Status& own, Deadline deadline);

  /// Sends and receives rows, all of them together, so that ranks that exchange rows cannot wait
  /// for each other in a circle. Those between two ranks match in the order of the calls and lists.
  /// Where rows run in both directions at their own pace, each direction has a group of its own.
  /// Ends when this rank's part is done. Errors: as `Collectives`; a rank out of range.
  Operation exchange_rows(std::span<const NcclRowsTo> to, std::span<const NcclRowsFrom> from,
                          Deadline deadline);

  /// A member's node is lost: ends whatever is under way here, instead of at its deadline. From any
  /// thread, also the transport's. Nodes that are no members are ignored.
  void lose(Peer peer, const Error& why);

  /// Ends whatever is under way here, and the group with it. What is left is its successor.
  void end(const Error& why);

 private:
  struct Past;
  struct Maker;

  NcclGroup(Transport& transport, std::shared_ptr<NcclContext> context,
            std::shared_ptr<NcclStream> stream, NcclGroupOptions options, NcclMeeting meeting,
            std::shared_ptr<NcclCommunicator> communicator);

  Status sum_everywhere(MutableBuffer data, Scalar scalar, Deadline deadline) override;
  Status sum_in_shards(ConstBuffer input, std::span<const std::size_t> counts, Scalar scalar,
                       MutableBuffer output, Deadline deadline) override;
  Status gather(ConstBuffer input, std::span<const std::size_t> bytes, MutableBuffer output,
                Deadline deadline) override;
  Status exchange(ConstBuffer input, std::span<const std::size_t> send_bytes, MutableBuffer output,
                  std::span<const std::size_t> receive_bytes, Deadline deadline) override;
  Status copy_from(MutableBuffer data, std::int32_t root_rank, Deadline deadline) override;
  Status meet(Deadline deadline) override;

  /// The steps of a call, with what it needs until its end.
  struct Work;
  Status add_shard_sum(Work& work, const ConstBuffer& input, std::span<const std::size_t> starts,
                       Scalar scalar, std::byte* output);
  void add_gathering(Work& work, const ConstBuffer& piece, std::span<const std::size_t> starts,
                     const MutableBuffer& output);
  Status add_sum(Work& work, const MutableBuffer& data, Scalar scalar);
  Operation begin_sum(const MutableBuffer& data, Scalar scalar, Deadline deadline);
  Operation launch(std::string what, Work work, Deadline deadline);
  Status run(std::string what, Work work, Deadline deadline);

  Transport* transport_;
  std::shared_ptr<NcclContext> context_;
  std::shared_ptr<NcclStream> stream_;
  NcclGroupOptions options_;
  NcclMeeting meeting_;
  std::shared_ptr<NcclCommunicator> communicator_;
  std::uint64_t calls_ = 0;
};

}  // namespace troupe::transport
