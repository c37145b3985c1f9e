#include "transport/nccl/nccl_group.hpp"

#include <algorithm>
#include <utility>

#include "transport/collectives/pieces.hpp"

namespace troupe::transport {
namespace {

using Call = std::function<nccl::Code(nccl::Comm)>;

nccl::DataType type_of(Scalar scalar) {
  switch (scalar) {
    case Scalar::fp32: return nccl::DataType::float32;
    case Scalar::fp64: return nccl::DataType::float64;
    case Scalar::bf16: return nccl::DataType::bfloat16;
    case Scalar::int64: return nccl::DataType::int64;
  }
  return nccl::DataType::int8;
}

std::string name_of(Scalar scalar) {
  switch (scalar) {
    case Scalar::fp32: return "fp32";
    case Scalar::fp64: return "fp64";
    case Scalar::bf16: return "bf16";
    case Scalar::int64: return "int64";
  }
  return "";
}

/// The calls as one group of NCCL's: all begin before any must end.
NcclCommunicator::Step fused(std::shared_ptr<const NcclLibrary> library, std::vector<Call> calls) {
  return [library = std::move(library), calls = std::move(calls)](nccl::Comm comm) -> Status {
    auto code = library->calls().group_start();
    if (code != nccl::Code::success) return library->error("launching", code);
    for (const auto& call : calls) {
      if (code == nccl::Code::success || code == nccl::Code::in_progress) code = call(comm);
    }
    // Also after a failure: NCCL counts starts and ends.
    const auto ended = library->calls().group_end();
    if (code == nccl::Code::success || code == nccl::Code::in_progress) code = ended;
    if (code == nccl::Code::success || code == nccl::Code::in_progress) return Done{};
    return library->error("launching", code);
  };
}

}  // namespace

struct NcclGroup::Work {
  const NcclGroup& group;
  std::vector<NcclCommunicator::Step> steps;
  std::shared_ptr<std::vector<std::shared_ptr<const void>>> keep =
      std::make_shared<std::vector<std::shared_ptr<const void>>>();

  explicit Work(const NcclGroup& its_group) : group(its_group) {}

  const nccl::Functions& calls() const { return group.context_->library->calls(); }
  nccl::Stream stream() const { return group.stream_->handle(); }

  Call send(const ConstBuffer& data, std::size_t to_rank) {
    keep->push_back(data.owner);
    return [function = calls().send, from = data.data, bytes = data.bytes, to_rank,
            on = stream()](nccl::Comm comm) {
      return function(from, bytes, nccl::DataType::int8, static_cast<int>(to_rank), comm, on);
    };
  }
  Call receive(const MutableBuffer& data, std::size_t from_rank) {
    keep->push_back(data.owner);
    return [function = calls().recv, to = data.data, bytes = data.bytes, from_rank,
            on = stream()](nccl::Comm comm) {
      return function(to, bytes, nccl::DataType::int8, static_cast<int>(from_rank), comm, on);
    };
  }
  void fuse(std::vector<Call> calls) {
    if (!calls.empty()) steps.push_back(fused(group.context_->library, std::move(calls)));
  }
};

NcclGroup::NcclGroup(Transport& transport, std::shared_ptr<NcclContext> context,
                     std::shared_ptr<NcclStream> stream, NcclGroupOptions options,
                     NcclMeeting meeting, std::shared_ptr<NcclCommunicator> communicator)
    : Collectives(options.rank, static_cast<std::int32_t>(options.members.size())),
      transport_(&transport),
      context_(std::move(context)),
      stream_(std::move(stream)),
      options_(std::move(options)),
      meeting_(std::move(meeting)),
      communicator_(std::move(communicator)) {}

NcclGroup::~NcclGroup() {
  if (communicator_) {
    communicator_->abort(
        {Errc::cancelled, "the NCCL group '" + options_.name + "' is gone", "", ""});
  }
}

Operation NcclGroup::launch(std::string what, Work work, Deadline deadline) {
  what += " (call " + std::to_string(++calls_) + ")";
  return communicator_->launch(std::move(what), std::move(work.steps), std::move(work.keep),
                               deadline);
}

Status NcclGroup::run(std::string what, Work work, Deadline deadline) {
  auto status = launch(std::move(what), std::move(work), deadline).wait(deadline + kNcclGrace);
  return status;
}

Status NcclGroup::add_shard_sum(Work& work, const ConstBuffer& input,
                                std::span<const std::size_t> starts, Scalar scalar,
                                std::byte* output) {
  const auto own = static_cast<std::size_t>(rank()), ranks = static_cast<std::size_t>(size());
  const auto own_bytes = starts[own + 1] - starts[own];
  auto scratch = stream_->allocate(own_bytes * (ranks - 1));
  if (!scratch) return scratch.error();
  std::vector<const void*> inputs;
  std::vector<Call> calls;
  auto* place = scratch.value().get();
  for (std::size_t other = 0; other < ranks; ++other) {
    if (other == own) {
      inputs.push_back(at(input, starts[own]));
      continue;
    }
    const auto bytes = starts[other + 1] - starts[other];
    if (own_bytes > 0) calls.push_back(work.receive({place, own_bytes, scratch.value()}, other));
    if (bytes > 0) calls.push_back(work.send(slice(input, starts[other], bytes), other));
    inputs.push_back(place);
    place += own_bytes;
  }
  work.fuse(std::move(calls));
  if (own_bytes == 0) return Done{};
  work.steps.push_back(
      [stream = stream_, inputs, count = own_bytes / size_of(scalar), scalar, output](nccl::Comm) {
        return stream->launch_sum(inputs, count, scalar, output);
      });
  return Done{};
}

void NcclGroup::add_gathering(Work& work, const ConstBuffer& piece,
                              std::span<const std::size_t> starts, const MutableBuffer& output) {
  const auto own = static_cast<std::size_t>(rank());
  std::vector<Call> calls;
  for (std::size_t other = 0; other + 1 < starts.size(); ++other) {
    const auto bytes = starts[other + 1] - starts[other];
    // To itself too, unless the piece lies in its place already.
    if (other == own && piece.data == at(output, starts[own])) continue;
    if (bytes > 0) calls.push_back(work.receive(slice(output, starts[other], bytes), other));
    if (piece.bytes > 0) calls.push_back(work.send(piece, other));
  }
  work.fuse(std::move(calls));
}

Operation NcclGroup::begin_all_reduce(MutableBuffer data, Scalar scalar, Deadline deadline) {
  if (data.bytes % size_of(scalar) != 0) {
    return Operation(Error{
        Errc::invalid_argument,
        std::to_string(data.bytes) + " bytes are no whole elements of " + name_of(scalar), "", ""});
  }
  return begin_sum(data, scalar, deadline);
}

Status NcclGroup::sum_everywhere(MutableBuffer data, Scalar scalar, Deadline deadline) {
  return begin_sum(data, scalar, deadline).wait(deadline + kNcclGrace);
}

Status NcclGroup::add_sum(Work& work, const MutableBuffer& data, Scalar scalar) {
  const auto count = data.bytes / size_of(scalar);
  work.keep->push_back(data.owner);
  if (options_.sums == NcclSums::as_nccl_likes) {
    work.fuse({[function = work.calls().all_reduce, to = data.data, count, scalar,
                on = work.stream()](nccl::Comm comm) {
      return function(to, to, count, type_of(scalar), nccl::ReduceOp::sum, comm, on);
    }});
    return Done{};
  }
  const auto counts = shard_counts(count, static_cast<std::size_t>(size()));
  const auto starts = starts_of(times(counts, size_of(scalar)));
  const auto own = static_cast<std::size_t>(rank());
  auto status = add_shard_sum(work, as_const(data), starts, scalar, at(data, starts[own]));
  if (!status) return status;
  const auto shard = slice(as_const(data), starts[own], starts[own + 1] - starts[own]);
  add_gathering(work, shard, starts, data);
  return Done{};
}

Operation NcclGroup::begin_sum(const MutableBuffer& data, Scalar scalar, Deadline deadline) {
  Work work(*this);
  if (auto status = add_sum(work, data, scalar); !status) return Operation(status);
  return launch(
      "all-reduce of " + std::to_string(data.bytes / size_of(scalar)) + " " + name_of(scalar),
      std::move(work), deadline);
}

Operation NcclGroup::begin_warm_up(std::vector<std::size_t> lengths, Deadline deadline) {
  for (auto& length : lengths) length = std::min(length, kWarmUpElementsMax);
  std::ranges::sort(lengths);
  const auto twice = std::ranges::unique(lengths);
  lengths.erase(twice.begin(), twice.end());
  // In rank order the longest sum uses all pairs of ranks that shorter ones do, as a short one has
  // few shards. NCCL picks one of several ways by the length, and connects each by itself.
  if (options_.sums == NcclSums::in_rank_order && lengths.size() > 1) lengths = {lengths.back()};
  auto memory = stream_->allocate(lengths.empty() ? 0 : lengths.back() * sizeof(float));
  if (!memory) return Operation(memory.error());
  Work work(*this);
  for (const auto length : lengths) {
    const MutableBuffer data{memory.value().get(), length * sizeof(float), memory.value()};
    if (auto status = add_sum(work, data, Scalar::fp32); !status) return Operation(status);
  }
  return communicator_->launch("warm-up", std::move(work.steps), std::move(work.keep), deadline);
}

Status NcclGroup::sum_in_shards(ConstBuffer input, std::span<const std::size_t> counts,
                                Scalar scalar, MutableBuffer output, Deadline deadline) {
  const auto starts = starts_of(times(counts, size_of(scalar)));
  Work work(*this);
  work.keep->push_back(input.owner);
  work.keep->push_back(output.owner);
  if (options_.sums == NcclSums::as_nccl_likes) {
    // Shards of any sizes: one sum per rank that gets one, all at once.
    std::vector<Call> calls;
    for (std::size_t root = 0; root < counts.size(); ++root) {
      if (counts[root] == 0) continue;
      calls.push_back([function = work.calls().reduce, from = at(input, starts[root]),
                       to = output.data, count = counts[root], scalar, root,
                       on = work.stream()](nccl::Comm comm) {
        return function(from, to, count, type_of(scalar), nccl::ReduceOp::sum,
                        static_cast<int>(root), comm, on);
      });
    }
    work.fuse(std::move(calls));
  } else {
    auto* target = static_cast<std::byte*>(output.data);
    if (auto status = add_shard_sum(work, input, starts, scalar, target); !status) return status;
  }
  return run(
      "reduce-scatter of " + std::to_string(input.bytes / size_of(scalar)) + " " + name_of(scalar),
      std::move(work), deadline);
}

Status NcclGroup::gather(ConstBuffer input, std::span<const std::size_t> bytes,
                         MutableBuffer output, Deadline deadline) {
  Work work(*this);
  work.keep->push_back(output.owner);
  add_gathering(work, input, starts_of(bytes), output);
  return run("all-gather of " + std::to_string(output.bytes) + " bytes", std::move(work), deadline);
}

Status NcclGroup::exchange(ConstBuffer input, std::span<const std::size_t> send_bytes,
                           MutableBuffer output, std::span<const std::size_t> receive_bytes,
                           Deadline deadline) {
  const auto sent = starts_of(send_bytes), received = starts_of(receive_bytes);
  Work work(*this);
  std::vector<Call> calls;
  for (std::size_t other = 0; other < send_bytes.size(); ++other) {
    if (receive_bytes[other] > 0) {
      calls.push_back(work.receive(slice(output, received[other], receive_bytes[other]), other));
    }
    if (send_bytes[other] > 0) {
      calls.push_back(work.send(slice(input, sent[other], send_bytes[other]), other));
    }
  }
  work.fuse(std::move(calls));
  return run("all-to-all of " + std::to_string(input.bytes) + " bytes", std::move(work), deadline);
}

Status NcclGroup::copy_from(MutableBuffer data, std::int32_t root_rank, Deadline deadline) {
  Work work(*this);
  work.keep->push_back(data.owner);
  if (data.bytes > 0) {
    work.fuse({[function = work.calls().broadcast, to = data.data, bytes = data.bytes, root_rank,
                on = work.stream()](nccl::Comm comm) {
      return function(to, to, bytes, nccl::DataType::int8, root_rank, comm, on);
    }});
  }
  return run("broadcast of " + std::to_string(data.bytes) + " bytes", std::move(work), deadline);
}

Status NcclGroup::meet(Deadline deadline) {
  // A sum that nobody reads: NCCL has no barrier, and in a sum everyone needs everyone.
  auto word = stream_->allocate(sizeof(std::int64_t));
  if (!word) return word.error();
  Work work(*this);
  work.keep->push_back(word.value());
  work.fuse({[function = work.calls().all_reduce, to = word.value().get(),
              on = work.stream()](nccl::Comm comm) {
    return function(to, to, 1, nccl::DataType::int64, nccl::ReduceOp::sum, comm, on);
  }});
  return run("barrier", std::move(work), deadline);
}

Operation NcclGroup::exchange_rows(std::span<const NcclRowsTo> to,
                                   std::span<const NcclRowsFrom> from, Deadline deadline) {
  Work work(*this);
  std::vector<Call> calls;
  const auto is_rank = [this](std::int32_t other) { return other >= 0 && other < size(); };
  const auto refused = [](std::int32_t other) {
    return Operation(Error{Errc::invalid_argument,
                           "there is no rank " + std::to_string(other) + " for rows in this group",
                           "", ""});
  };
  std::size_t bytes = 0;
  for (const auto& rows : from) {
    if (!is_rank(rows.rank)) return refused(rows.rank);
    if (rows.data.bytes == 0) continue;
    calls.push_back(work.receive(rows.data, static_cast<std::size_t>(rows.rank)));
    bytes += rows.data.bytes;
  }
  for (const auto& rows : to) {
    if (!is_rank(rows.rank)) return refused(rows.rank);
    if (rows.data.bytes == 0) continue;
    calls.push_back(work.send(rows.data, static_cast<std::size_t>(rows.rank)));
    bytes += rows.data.bytes;
  }
  work.fuse(std::move(calls));
  return launch("rows of " + std::to_string(bytes) + " bytes", std::move(work), deadline);
}

void NcclGroup::lose(Peer peer, const Error& why) {
  for (std::size_t member = 0; member < options_.members.size(); ++member) {
    if (options_.members[member] != peer) continue;
    communicator_->end({Errc::transport_failed,
                        "the NCCL group '" + options_.name + "' has lost rank " +
                            std::to_string(member) + ": " + why.message,
                        "", ""});
  }
}

void NcclGroup::end(const Error& why) { communicator_->end(why); }

}  // namespace troupe::transport
