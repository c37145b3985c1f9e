// How the ranks of an NCCL group come to a communicator: the first, the next one, and parts of one.

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/nccl/nccl_group.hpp"

namespace troupe::transport {
namespace {

using Clock = std::chrono::steady_clock;

nccl::Config config_of(const std::string& name) {
  nccl::Config config;
  config.blocking = 0;
  config.comm_name = name.c_str();
  return config;
}

/// Begins all errors of a group: its name, number, generation, and who says it.
std::string title_of(const NcclGroupOptions& options) {
  return "NCCL group '" + options.name + "' (" + std::to_string(options.group_id) +
         ") of generation " + std::to_string(options.generation) + ", rank " +
         std::to_string(options.rank) + " of " + std::to_string(options.members.size());
}

/// Asks NCCL for an id on the device's thread: it opens a socket, and may hang over it. Errors:
/// timed_out: it does; transport_failed, invalid_argument: NCCL's.
Result<nccl::UniqueId> make_id(const std::shared_ptr<NcclContext>& context, Deadline deadline) {
  struct Asked {
    Completion completion = Completion::pending();
    nccl::UniqueId id{};
  };
  const auto asked = std::make_shared<Asked>();
  const auto started = Clock::now();
  context->worker.post([asked, library = context->library] {
    const auto code = library->calls().get_unique_id(&asked->id);
    asked->completion.complete(code == nccl::Code::success
                                   ? Status(Done{})
                                   : Status(library->error("making an id", code)));
  });
  replace_when_stuck(context);
  const auto status = asked->completion.operation().wait(deadline);
  if (status) return asked->id;
  if (status.error().code != Errc::timed_out) return status.error();
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - started);
  return Error{
      Errc::timed_out,
      "the call that makes its id has not ended after " + std::to_string(waited.count()) + " ms",
      "", ""};
}

/// The worst failure, with its rank; the others may only have waited for that one. `own`: of this
/// rank, `rank`: timed_out where that is the one.
std::optional<Error> failure_in(const std::vector<NcclOutcome>& outcomes, const Status& own,
                                std::int32_t rank) {
  const auto worst = std::ranges::max_element(outcomes, {}, &NcclOutcome::kind);
  if (worst->kind == NcclOutcome::Kind::well) return std::nullopt;
  const auto number = worst - outcomes.begin();
  const bool is_own_hang = number == rank && !own && own.error().code == Errc::timed_out;
  return Error{is_own_hang ? Errc::timed_out : Errc::transport_failed,
               "rank " + std::to_string(number) +
                   " says: " + std::string(worst->why, strnlen(worst->why, sizeof worst->why)),
               "", ""};
}

/// A meeting that does not come about, or a wait of which others say nothing, is never this rank's
/// fault.
Error at_others(Error error) {
  if (error.code == Errc::timed_out) error.code = Errc::transport_failed;
  return error;
}

bool is_hopeless(const std::vector<NcclOutcome>& outcomes) {
  return std::ranges::any_of(outcomes, [](const NcclOutcome& outcome) {
    return outcome.kind == NcclOutcome::Kind::hopeless;
  });
}

}  // namespace

/// What is left of the group of the generation before.
struct NcclGroup::Past {
  std::shared_ptr<NcclCommunicator> communicator;
  EpochNumber generation = 0;
  std::uint32_t group_id = 0;
  std::int32_t rank = -1;
  std::int32_t size = 0;
};

/// Comes to a communicator together with the other ranks, in several attempts.
struct NcclGroup::Maker {
  Transport& transport;
  std::shared_ptr<NcclContext> context;
  std::shared_ptr<NcclStream> stream;
  NcclGroupOptions options;
  Past past;
  NcclMeeting meeting;
  Deadline deadline;

  Deadline attempt_end() const { return std::min(deadline, Clock::now() + options.attempt); }

  NcclHello hello() const {
    NcclHello hello;
    hello.version = context->library->version();
    hello.generation = options.generation;
    hello.group_id = options.group_id;
    const auto device = stream->device();
    std::memcpy(hello.device, device.data(), std::min(device.size(), sizeof hello.device - 1));
    const bool can_shrink = options.may_shrink && context->library->can_shrink() &&
                            past.communicator && past.communicator->can_be_parent();
    if (!can_shrink) return hello;
    hello.parent_rank = past.rank;
    hello.parent_generation = past.generation;
    hello.parent_id = past.group_id;
    hello.parent_size = past.size;
    return hello;
  }

  std::shared_ptr<NcclCommunicator> shrink(const std::vector<NcclHello>& hellos) {
    std::vector<int> excluded;
    for (int rank = 0; rank < past.size; ++rank) {
      const bool stays = std::ranges::any_of(
          hellos, [=](const NcclHello& hello) { return hello.parent_rank == rank; });
      if (!stays) excluded.push_back(rank);
    }
    const auto opener = [library = context->library, parent = past.communicator, excluded,
                         name = options.name](nccl::Comm* made) mutable {
      auto config = config_of(name);
      const auto comm = parent->handle();
      if (comm == nullptr) return nccl::Code::invalid_usage;
      return library->calls().comm_shrink(comm, excluded.data(), static_cast<int>(excluded.size()),
                                          made, &config, nccl::kShrinkAbort);
    };
    return NcclCommunicator::open(context, stream, title_of(options), {opener, past.communicator},
                                  attempt_end());
  }

  std::shared_ptr<NcclCommunicator> init(const nccl::UniqueId& id) {
    const auto opener = [library = context->library, ranks = options.members.size(), id,
                         rank = options.rank, name = options.name](nccl::Comm* made) {
      auto config = config_of(name);
      return library->calls().comm_init_rank_config(made, static_cast<int>(ranks), id, rank,
                                                    &config);
    };
    return NcclCommunicator::open(context, stream, title_of(options), {opener}, attempt_end());
  }

  /// Lets go of `communicator`, if there is one. Errors: see `NcclCommunicator::await_release`.
  Status let_go_of(const std::shared_ptr<NcclCommunicator>& communicator) {
    if (!communicator) return Done{};
    communicator->abort({Errc::cancelled, "the communicator was given up", "", ""});
    return communicator->await_release(Clock::now() + context->limits.release);
  }

  /// One attempt. A communicator that one rank could not open is none: it is given up everywhere.
  /// Errors: what the meeting says, or the rank that failed; `hopeless`: no attempt will do.
  Result<std::shared_ptr<NcclCommunicator>> attempt(std::int32_t number,
                                                    const std::vector<NcclHello>* shrinking,
                                                    bool& hopeless) {
    std::shared_ptr<NcclCommunicator> made;
    Status own = Done{};
    auto at_least = NcclOutcome::Kind::waited;
    if (shrinking) {
      made = shrink(*shrinking);
    } else {
      // First of all: NCCL has to be done with the old one before there is a new one on the device.
      own = let_go_of(past.communicator);
      if (!own) at_least = NcclOutcome::Kind::hopeless;
      auto own_id = Result<nccl::UniqueId>(nccl::UniqueId{});
      if (options.rank == 0) own_id = own ? make_id(context, attempt_end()) : own.error();
      const auto id = meeting.share_id(own_id, number, deadline);
      if (own && !id) own = id.error();
      if (own) made = init(id.value());
    }
    // The watchdog ends it; the bound here is for the watchdog.
    if (made) own = made->opened().wait(attempt_end() + std::chrono::seconds(1));
    if (!own && made && made->is_stuck()) at_least = NcclOutcome::Kind::stuck;
    if (shrinking) {
      if (const auto gone = let_go_of(past.communicator); !gone) {
        own = gone;
        at_least = NcclOutcome::Kind::hopeless;
      }
    }
    if (!own && made) {
      if (const auto gone = let_go_of(made); !gone) {
        own = gone;
        at_least = NcclOutcome::Kind::hopeless;
      }
    }
    // Letting go of one that hangs takes time besides.
    const auto outcomes =
        meeting.compare(outcome_of(own, at_least), deadline + context->limits.release);
    const auto failure = outcomes ? failure_in(outcomes.value(), own, options.rank)
                                  : std::optional(at_others(outcomes.error()));
    if (!failure) return made;
    hopeless = !outcomes.ok() || is_hopeless(outcomes.value());
    if (const auto gone = let_go_of(made); !gone) return gone.error();
    return *failure;
  }

  Result<std::shared_ptr<NcclCommunicator>> make() {
    if (past.communicator) {
      past.communicator->end(
          {Errc::cancelled,
           "generation " + std::to_string(past.generation) + " is over: a later one begins", "",
           ""});
      // If it does not become quiet it cannot be shrunk, and letting go of it says why.
      (void)past.communicator->await_quiet(Clock::now() + context->limits.release);
    }
    const auto hellos = meeting.greet(hello(), deadline);
    if (!hellos) {
      (void)let_go_of(past.communicator);
      return at_others(hellos.error());
    }
    bool shrinks = can_all_shrink(hellos.value());
    Error last;
    for (std::int32_t number = 0; number < std::max(options.attempts_max, 1); ++number) {
      bool hopeless = false;
      auto made = attempt(number, shrinks ? &hellos.value() : nullptr, hopeless);
      if (made) return made;
      last = made.error();
      if (hopeless || Clock::now() >= deadline) break;
      shrinks = false;  // Once is enough: a new one needs nothing of the old.
    }
    (void)let_go_of(past.communicator);
    last.message = title_of(options) + " cannot be opened: " + last.message;
    return last;
  }

  static Made run(Transport& transport, std::shared_ptr<NcclContext> context,
                  std::shared_ptr<NcclStream> stream, NcclGroupOptions options, Past past,
                  Deadline deadline) {
    auto meeting = NcclMeeting::create(
        transport, {options.members, options.rank, options.generation, options.group_id});
    if (!meeting) return meeting.error();
    Maker maker{transport,       std::move(context),         std::move(stream), std::move(options),
                std::move(past), std::move(meeting).value(), deadline};
    auto made = maker.make();
    if (!made) return made.error();
    return std::unique_ptr<NcclGroup>(
        new NcclGroup(maker.transport, std::move(maker.context), std::move(maker.stream),
                      std::move(maker.options), std::move(maker.meeting), std::move(made).value()));
  }
};

NcclGroup::Made NcclGroup::create(Transport& transport, std::shared_ptr<NcclContext> context,
                                  std::shared_ptr<NcclStream> stream, NcclGroupOptions options,
                                  Deadline deadline) {
  return Maker::run(transport, std::move(context), std::move(stream), std::move(options), {},
                    deadline);
}

NcclGroup::Made NcclGroup::rebuild(std::unique_ptr<NcclGroup> old, std::vector<Peer> members,
                                   std::int32_t rank, EpochNumber generation, Deadline deadline) {
  auto options = old->options_;
  options.members = std::move(members);
  options.rank = rank;
  options.generation = generation;
  return succeed(std::move(old), std::move(options), deadline);
}

NcclGroup::Made NcclGroup::succeed(std::unique_ptr<NcclGroup> old, NcclGroupOptions options,
                                   Deadline deadline) {
  const EpochNumber generation = options.generation;
  if (generation <= old->options_.generation) {
    return Error{Errc::invalid_argument,
                 "the NCCL group '" + old->options_.name + "' of generation " +
                     std::to_string(old->options_.generation) +
                     " cannot be rebuilt for generation " + std::to_string(generation),
                 "", "each reconfiguration has a later generation"};
  }
  Past past{old->communicator_, old->options_.generation, old->options_.group_id, old->rank(),
            old->size()};
  auto& transport = *old->transport_;
  const auto context = old->context_;
  const auto stream = old->stream_;
  old->communicator_ = nullptr;  // Now the past's.
  old.reset();
  auto communicator = past.communicator;
  auto made = Maker::run(transport, context, stream, std::move(options), std::move(past), deadline);
  // Where not even the meeting could begin.
  if (!made) communicator->abort({Errc::cancelled, "its successor could not be opened", "", ""});
  return made;
}

Status NcclGroup::compare(const Status& own, Deadline deadline) {
  const bool knows_why = !own && own.error().code != Errc::timed_out;
  // The others have to hear of it. Their words change nothing here, and a lost one says none.
  if (knows_why) deadline = std::min(deadline, Clock::now() + kNcclGrace);
  const auto outcomes =
      meeting_.compare(outcome_of(own, communicator_->is_stuck() ? NcclOutcome::Kind::stuck
                                                                 : NcclOutcome::Kind::waited),
                       deadline);
  if (knows_why) return own;
  if (!outcomes) return at_others(own ? outcomes.error() : own.error());
  auto failure = failure_in(outcomes.value(), own, rank());
  if (!failure) return Done{};
  failure->message = title_of(options_) + " does not connect: " + failure->message;
  return *failure;
}

NcclGroup::Made NcclGroup::split(std::optional<std::int32_t> color, std::uint32_t group_id,
                                 std::string name, std::shared_ptr<NcclStream> stream,
                                 Deadline deadline) {
  const std::int64_t own_color = color ? *color : nccl::kNoColor;
  const auto colors = meeting_.exchange_numbers(own_color, deadline);
  if (!colors) return colors.error();
  auto options = options_;
  options.name = std::move(name);
  options.group_id = group_id;
  options.members.clear();
  for (std::size_t other = 0; other < colors.value().size(); ++other) {
    if (!color || colors.value()[other] != own_color) continue;
    if (other == static_cast<std::size_t>(rank())) {
      options.rank = static_cast<std::int32_t>(options.members.size());
    }
    options.members.push_back(options_.members[other]);
  }
  const auto opener = [library = context_->library, parent = communicator_, own_color, key = rank(),
                       name = options.name](nccl::Comm* made) {
    auto config = config_of(name);
    const auto comm = parent->handle();
    if (comm == nullptr) return nccl::Code::invalid_usage;
    return library->calls().comm_split(comm, static_cast<int>(own_color), key, made, &config);
  };
  const auto end = std::min(deadline, Clock::now() + options.attempt);
  auto part = NcclCommunicator::open(context_, stream, title_of(options),
                                     {opener, communicator_, true, !color.has_value()}, end);
  const auto own = part->opened().wait(end + std::chrono::seconds(1));
  const auto outcomes = meeting_.compare(outcome_of(own), deadline + options.attempt);
  auto failure = outcomes ? failure_in(outcomes.value(), own, rank())
                          : std::optional(at_others(outcomes.error()));
  if (!failure && color) {
    auto meeting = NcclMeeting::create(
        *transport_, {options.members, options.rank, options.generation, options.group_id});
    if (meeting) {
      return std::unique_ptr<NcclGroup>(new NcclGroup(*transport_, context_, std::move(stream),
                                                      std::move(options),
                                                      std::move(meeting).value(), std::move(part)));
    }
    failure = meeting.error();
  }
  if (!failure) return std::unique_ptr<NcclGroup>();
  failure->message = title_of(options) + " cannot be split off: " + failure->message;
  part->abort(*failure);
  // NCCL may still be at it in the whole group, which nobody can use meanwhile.
  communicator_->end(*failure);
  return *failure;
}

}  // namespace troupe::transport
