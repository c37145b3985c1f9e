// Whether stages keep what `StageProgram` promises: each module of a job's model, as a stage of its
// own, on a few samples of the job's data, in fp64 on the CPU.
//
// Runs code of the user's on the caller's thread, which a layer that never returns keeps; who calls
// gives it a thread of its own and says when it has waited long enough.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/job/job.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

/// A promise that was not kept.
struct Breach {
  std::string promise;  ///< In a word or two: `gradients`, `split backward`.
  std::string found;    ///< What was found, with numbers.
  std::string fix;      ///< Where to look.
};

/// One stage: the layers of a module, an encoder's with those of its projector.
struct StageVerdict {
  std::string stage;  ///< `vision 0-3, vision_projector 0`.
  std::vector<std::string> kept;
  std::vector<Breach> breaches;
  double seconds = 0;
};

struct ContractOptions {
  std::string module = {};   ///< Of its stage alone; empty: of all.
  std::int64_t samples = 4;  ///< At most; with every medium and text alone, where the data have it.
  std::uint64_t seed = 1;    ///< Of the directions in which gradients are held.
  double tolerance = 1e-5;   ///< Of gradients, relative, against central differences.
  std::function<void(const std::string& stage, const std::string& promise)> on_begin = {};
};

/// Holds every promise, one stage after the other, in the order of the plan's:
/// - rows: those of the plan's messages, finite, and nothing thrown;
/// - same bits: a second round, of the same stage and of one made anew, gives what the first gave;
/// - gradients: of rows and of each layer's parameters, against central differences along random
///   directions;
/// - split backward: input gradients, then weight gradients, to the bit what a whole one gives;
/// - order of parts: backwards from the last part on, up to the order of a sum (1e-9);
/// - abandon: a round after one that was given up gives what the first gave;
/// - memory: nothing is held after a round, and the next one takes none for good.
///
/// Errors: as `prepare` and `Dataset::open`; bad_data: no good sample; not_found: no such module.
Result<std::vector<StageVerdict>> check_contract(const job::Job& job,
                                                 const ContractOptions& options);

}  // namespace troupe::engine
