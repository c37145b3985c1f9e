// A program of one's own: all that `troupe` is, and a microbatch policy that deals samples in turn.

#include "app/program.hpp"
#include "runtime/policies/registry.hpp"

namespace {

using namespace troupe;
using namespace troupe::policies;

Result<MicrobatchPlan> deal(std::span<const Workload> samples, const PolicyOptions& options) {
  MicrobatchPlan made;
  made.llm.resize(std::size_t(options.microbatches));
  for (std::size_t i = 0; i < samples.size(); ++i)
    made.llm[i % made.llm.size()].push_back(std::int32_t(i));
  made.encoder = made.llm;  // Nothing is deferred: both sides run the same samples.
  // Nobody looks at `options.llm_cap_ms` here: a job whose llm lacks memory for it ends.
  return made;
}

}  // namespace

int main(int count, char** words) {
  return run_program(count, words, [] { return register_policy({"weaver", deal}); });
}
