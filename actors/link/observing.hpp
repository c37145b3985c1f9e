// How processes that take no part in a job look at what it computes: all messages on one page.
//
//   listener (any process with the job's key) <---> hub (head process) <---> presenter (node
//   process)
//
// A listener reaches the hub by the head's door, as a node does, and by its name there. Values come
// from the node that computed them; the head passes them on and keeps none. Whatever is sent to a
// listener weighs something (`weight_of`), and no more than `kUntakenMax` of it is under way per
// node: a listener says what it took, and what has no room meanwhile is dropped by the node that
// computed it. `troupe::watch` (app/watch.hpp) is a listener for who writes none of his own.
// `register_listener` (actors/observing/own_listener.hpp) puts a listener and a hub into each node
// process.

#pragma once

#include <caf/all.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe::actors {

/// The hub's name in the head process.
inline constexpr auto kObservingHub = caf::atom("observers");

/// Of this page; a hub refuses another one.
inline constexpr std::uint32_t kObservingVersion = 1;

/// Values of a part travel in pieces of at most so many bytes: nothing else waits for long.
inline constexpr std::size_t kPieceBytesMax = std::size_t{128} << 10;

/// That a listener has not taken, of one node; the last piece may go beyond it.
inline constexpr std::uint64_t kUntakenMax = std::uint64_t{512} << 10;

/// Of `ListenRequest::queue`.
inline constexpr std::int64_t kQueueMax = 1024;

/// What a listener asks for; as `[[observe.observers]]` of a job file.
struct ListenRequest {
  std::uint32_t version = kObservingVersion;
  std::string who;     ///< `process 71 on host`, for the job's log.
  std::string module;  ///< Empty: all.
  bool rows = true;
  bool gradients = false;
  bool losses = false;
  std::int64_t every_steps = 1;  ///< >= 1.
  std::int64_t queue = 64;       ///< Parts that may wait for it on a node; 1 to `kQueueMax`.

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, ListenRequest& x) {
    return f(x.version, x.who, x.module, x.rows, x.gradients, x.losses, x.every_steps, x.queue);
  }
};

/// The job will show what was asked for. Refused with `caf::sec::invalid_argument` where it has no
/// such module, else with `runtime_error`; both with why, and the fix.
struct ListenWelcome {
  std::string job;
  std::vector<std::int32_t> nodes;  ///< Each says from which step on, or is gone.

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, ListenWelcome& x) {
    return f(x.job, x.nodes);
  }
};

/// A piece of what a module computed for a part of a microbatch (`observers::Observed`). Pieces of
/// a part follow each other; the first one alone has `ids`, `rows` and `first_rows`.
struct SeenPiece {
  std::uint64_t listener = 0;
  std::int32_t node = 0;
  std::int64_t step = 0;
  std::string module;
  std::uint8_t kind = 0;  ///< `observers::Kind`.
  std::int32_t replica = 0;
  std::int32_t microbatch = 0;
  std::int32_t part = 0;
  std::vector<std::string> ids;
  std::vector<std::int64_t> rows;
  std::vector<std::int64_t> first_rows;
  std::int64_t width = 0;
  std::uint8_t dtype = 0;           ///< `Dtype`.
  std::uint64_t bytes_all = 0;      ///< Of the values of the whole part.
  std::uint64_t begin = 0;          ///< Where among them this piece begins.
  std::vector<std::uint8_t> bytes;  ///< As they lie in the node's memory.

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, SeenPiece& x) {
    return f(x.listener, x.node, x.step, x.module, x.kind, x.replica, x.microbatch, x.part, x.ids,
             x.rows, x.first_rows, x.width, x.dtype, x.bytes_all, x.begin, x.bytes);
  }
};

/// The word on a step (`observers::ObservedStep`), from each node behind what it showed of it.
struct SeenStep {
  std::uint64_t listener = 0;
  std::int32_t node = 0;
  std::int64_t step = 0;
  bool committed = false;
  double loss = 0;
  double grad_norm = 0;
  double learning_rate = 0;
  std::int64_t tokens = 0;
  std::int64_t trained_tokens = 0;
  std::vector<std::string> ids;
  std::int64_t shown = 0;    ///< Parts that this node had for this listener since it listens.
  std::int64_t dropped = 0;  ///< The same that found no room.

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, SeenStep& x) {
    return f(x.listener, x.node, x.step, x.committed, x.loss, x.grad_norm, x.learning_rate,
             x.tokens, x.trained_tokens, x.ids, x.shown, x.dropped);
  }
};

/// Parts that there were for a listener since it listens at this hub.
struct ShownCount {
  std::int64_t shown = 0;
  std::int64_t dropped = 0;  ///< That found no room.

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, ShownCount& x) {
    return f(x.shown, x.dropped);
  }
};

/// About the bytes that it takes on its way.
std::uint64_t weight_of(const SeenPiece& piece);
std::uint64_t weight_of(const SeenStep& step);  ///< The same.

}  // namespace troupe::actors

// Behind those of protocol.hpp, which grows.
CAF_BEGIN_TYPE_ID_BLOCK(troupe_observing, caf::first_custom_type_id + 1000)

CAF_ADD_TYPE_ID(troupe_observing, (troupe::actors::ListenRequest))
CAF_ADD_TYPE_ID(troupe_observing, (troupe::actors::ListenWelcome))
CAF_ADD_TYPE_ID(troupe_observing, (troupe::actors::SeenPiece))
CAF_ADD_TYPE_ID(troupe_observing, (troupe::actors::SeenStep))
CAF_ADD_TYPE_ID(troupe_observing, (troupe::actors::ShownCount))

CAF_ADD_ATOM(troupe_observing, troupe::actors, listen_atom, "listen")
CAF_ADD_ATOM(troupe_observing, troupe::actors, here_atom, "here")
CAF_ADD_ATOM(troupe_observing, troupe::actors, gone_atom, "gone")
CAF_ADD_ATOM(troupe_observing, troupe::actors, took_atom, "took")
CAF_ADD_ATOM(troupe_observing, troupe::actors, over_atom, "over")
CAF_ADD_ATOM(troupe_observing, troupe::actors, lives_atom, "lives")
CAF_ADD_ATOM(troupe_observing, troupe::actors, waiting_atom, "waiting")

CAF_END_TYPE_ID_BLOCK(troupe_observing)

namespace troupe::actors {

/// Who looks at a job from outside.
using ListenerActor = caf::typed_actor<
    // This node shows what was asked for from this step on; again, where it has lost its part in
    // the layout: until it says a word there is nothing to wait for.
    caf::reacts_to<here_atom, std::int32_t, std::int64_t>,
    // This node shows nothing any more: it is lost, or left.
    caf::reacts_to<gone_atom, std::int32_t>,
    // What was asked for; `took_atom` answers both.
    caf::reacts_to<SeenPiece>, caf::reacts_to<SeenStep>,
    // The hub lives; every second.
    caf::reacts_to<lives_atom>,
    // The job has ended with this exit code (-1: not known); why, empty where all went well.
    caf::reacts_to<over_atom, std::int32_t, std::string>,
    // It is shown nothing any more, for this reason: it took nothing for too long.
    caf::reacts_to<gone_atom, std::string>>;

/// In the head process: who listens, and who shows.
using ObservingHubActor = caf::typed_actor<
    // Listen from a next step on. Errors (texts of the reply's error: why, and the fix): another
    // version, no such module, so many listen already, the job ends.
    caf::replies_to<listen_atom, ListenRequest>::with<ListenWelcome>,
    // The listener took so much of what this node sent.
    caf::reacts_to<took_atom, std::int32_t, std::uint64_t>,
    // It listens no more: what all nodes had for it.
    caf::replies_to<gone_atom>::with<ShownCount>,
    // A node has a place in the job (from its presenter).
    caf::reacts_to<here_atom, std::int32_t>,
    // A node shows this listener what it computes, from this step on (from its presenter).
    caf::reacts_to<here_atom, std::uint64_t, std::int64_t>,
    // To be passed on (from presenters).
    caf::reacts_to<SeenPiece>, caf::reacts_to<SeenStep>,
    // The job has ended: all are told, and may leave before the answer (head only).
    caf::replies_to<over_atom, std::int32_t, std::string>::with<over_atom>,
    // Time passes (from itself).
    caf::reacts_to<lives_atom>>;

/// In a node process: shows listeners what its devices compute.
using PresenterActor = caf::typed_actor<
    // The node has this place in the job of that hub.
    caf::reacts_to<here_atom, caf::strong_actor_ptr, std::int32_t>,
    // Somebody listens.
    caf::reacts_to<listen_atom, std::uint64_t, ListenRequest>,
    // It does no more: what there was for it.
    caf::replies_to<gone_atom, std::uint64_t>::with<ShownCount>,
    // A listener took so much.
    caf::reacts_to<took_atom, std::uint64_t, std::uint64_t>,
    // Something waits for somebody (from devices).
    caf::reacts_to<waiting_atom>,
    // Nothing is computed any more: answered when all that waits was taken (this process only).
    caf::replies_to<over_atom>::with<over_atom>>;

}  // namespace troupe::actors
