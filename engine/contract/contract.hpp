// Whether stages keep what `StageProgram` promises: each module of a job's model, or one of the
// layers that are alike, as a stage of its own, on a few samples, in fp64 on the CPU.
//
// Runs code of the user's on the caller's thread, which a layer that never returns keeps; who calls
// gives it a thread of its own and says when it has waited long enough.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/contract/stage_bench.hpp"
#include "runtime/job/job.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

/// A promise that was not kept.
struct Breach {
  std::string promise;  ///< In a word or two: `gradients`, `split backward`.
  std::string found;    ///< What was found, with numbers.
  std::string fix;      ///< Where to look.
};

/// One stage: the layers of a module, an encoder's with those of its projector; or one layer.
struct StageVerdict {
  std::string stage;       ///< `vision 0-3, vision_projector`.
  std::string kind;        ///< Of a layer that was tried alone, `llm.block`; else empty.
  std::string stage_kind;  ///< That runs it; empty: the engine's own stage.
  std::int32_t alike = 0;  ///< Layers of its module that are like it, for which it stands; else 0.
  std::vector<std::string> kept;
  std::vector<Breach> breaches;
  std::string not_tried;  ///< Why not, with the way out; empty: it was tried.
  double seconds = 0;

  bool keeps_all() const { return breaches.empty() && not_tried.empty(); }
};

struct ContractOptions {
  std::string module = {};  ///< Of its stage alone; empty: of all.
  BenchOptions bench = {};
  std::uint64_t seed = 1;   ///< Of the directions in which gradients are held.
  double tolerance = 1e-6;  ///< Of a gradient's norm, against slopes.
  /// What there is for one stage; 0: not looked at. A stage that needs more is not tried.
  Bytes memory = {};
  /// Told when a promise begins, and again while it goes on.
  std::function<void(const std::string& stage, const std::string& promise)> on_begin = {};
};

/// Holds every promise, one stage after the other, in the order of the plan's:
/// - rows: those of the plan's messages, of its type, contiguous, detached and finite; of the llm's
///   last layer a loss of each sample; and nothing thrown;
/// - same bits: a second round, of the same stage and of one made anew, gives what the first gave;
/// - gradients: of rows and of each parameter, against slopes along random directions
///   (`wrong_gradients`);
/// - split backward: input gradients, then weight gradients, to the bit what a whole one gives;
/// - order of parts: backwards from the last part on, up to the order of a sum (1e-9);
/// - built-in: a stage of a kind gives the rows, losses and gradients that the engine's own gives,
///   up to 1e-9;
/// - packing: samples beside each other in a part give, each of them, the rows, losses and
///   gradients that they give alone, up to 1e-9, and so does what layers add to the loss;
/// - parts: where two samples have media, a microbatch of encoders in two parts, both in flight,
///   one for a later microbatch of the llm: of each sample what it gives alone, up to 1e-9;
/// - pieces: where a sample has several items for an encoder, these in two pieces, in one part and
///   in two: of each sample what it gives alone, up to 1e-9; teachers beside them take whole ones;
/// - slice: of a batch that two pipelines train, on what its node gets of the plan, with numbers of
///   its own (`PlanSlices`), to the bit what it gives on the whole plan;
/// - abandon: a round after one that was given up, before its backwards or in the middle of them,
///   gives what the first gave;
/// - offload: what parts keep in host memory between forward and backward changes no bit, comes
///   back whole and counts, of encoders that train, where the stage can (`offloads`); so on a
///   device that completes its work late, by a thread of its own;
/// - shown: a stage that shows what it computes (`StageProgram::show_to`) shows the rows and
///   gradients that it hands on, and its losses, of each part once, while the part runs; changes no
///   bit by it; and shows nothing from when it is told that nobody looks;
/// - memory: nothing is held after a round, and the next one takes none for good; layers that keep
///   some by themselves are named, or the stage kind;
/// - frozen: what does not train has no gradient and the bits that it had, where there is such;
/// - gradient copies: `GroupState::copy_gradients` gives for each parameter, by its name, a copy of
///   its part of `gradients`, and nothing else; this and what follows where anything trains;
/// - hash: another one for each value and moment that is another one, the same for the same, and
///   that of the engine's own state, which holders on standby have;
/// - moments: in host memory but for their update, which works on copies (`fetch_state`,
///   `offload_state`), on such a device, values and moments are to the bit what they are where
///   moments stay; copies that are let go of go nowhere, and bytes are counted; of encoders that
///   train, as no plan has the llm's there;
/// - moved: behind a step of the optimizer the state goes to such a device, and behind the next one
///   back; what it leaves is overwritten, and a stage that is made there goes on to the bit as one
///   that stayed;
/// - cut: each module of several layers as two stages, on rows as wide as the plan has them; not
///   where layers are tried alone.
///
/// Errors: as `StageBench::create`; not_found: no such module.
Result<std::vector<StageVerdict>> check_contract(const job::Job& job,
                                                 const ContractOptions& options);

}  // namespace troupe::engine
