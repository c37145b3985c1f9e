// What a check finds of states that are a user's.

#include "tests/torch_catch.hpp"

#include "engine/contract/states.hpp"

#include <string>
#include <utility>

#include "tests/engine/faulty_job.hpp"

namespace troupe::engine {
namespace {

TEST_CASE("states of the engine's own keep what states promise, tied ones too", "[engine]") {
  job::Job job = tiny_job();
  auto& llm = job.modules.back();
  auto config = llm.config.as<models::LlmConfig>();
  config.tie_word_embeddings = true;
  llm.config = config;
  const auto bench = StageBench::create(job, {});
  REQUIRE(bench.ok());
  for (const StageId id : {StageId{0}, StageId{1}}) {
    const auto state = bench.value()->state(id);
    REQUIRE(state.ok());
    const auto inputs = bench.value()->draw_inputs(id);
    const auto promises = state_promises(*bench.value(), id);
    CHECK(promises.size() == (id == StageId{0} ? 3U : 2U));  // No plan moves moments of the llm.
    for (const StatePromise& one : promises) {
      const Status held = one.hold(*bench.value(), id, inputs, state.value());
      INFO(one.name << ": " << (held.ok() ? "" : held.error().message));
      CHECK(held.ok());
    }
  }
}

TEST_CASE("copies that are not the gradients have the name of their promise", "[engine]") {
  for (const std::string fault :
       {"copies zeros", "copies some", "copies more", "copies views", "clears"}) {
    CAPTURE(fault);
    CHECK(broken_by_stage(fault) == "gradient copies");
  }
}

TEST_CASE("a hash that follows from something else than the state has the name of its promise",
          "[engine]") {
  for (const std::string fault :
       {"one hash", "hashes values", "hashes gradients", "hashes its place"}) {
    CAPTURE(fault);
    CHECK(broken_by_stage(fault) == "hash");
  }
}

TEST_CASE("moments that do not come and go whole have the name of their promise", "[engine]") {
  for (const std::string fault :
       {"counts less", "fetches nothing", "fetches half", "fetches less", "offloads nothing",
        "forgets nothing", "forgets into host memory"}) {
    CAPTURE(fault);
    CHECK(broken_by_stage(fault) == "moments");
  }
}

TEST_CASE("a breach of states says which call of which group", "[engine][errors]") {
  using Case = std::pair<std::string, std::string>;
  for (const auto& [fault, found] :
       {Case{"copies zeros",
             "`copy_gradients` of 'projector.faulty' gives another gradient of 'projector.weight' "
             "than `gradients` has, or none"},
        Case{"copies views",
             "`copy_gradients` of 'projector.faulty' gives no copy of the gradient of "
             "'projector.weight': it changes with `gradients`"},
        Case{"one hash",
             "`hash` of 'projector.faulty' is the same for another value of 'projector.weight'"},
        Case{"hashes values",
             "`hash` of 'projector.faulty' is the same for another first moment of "
             "'projector.weight'"},
        Case{"hashes gradients",
             "`hash` of 'projector.faulty' is another one for the same values and moments"},
        Case{"hashes its place",
             "`hash` of 'projector.faulty' is another one than that of a holder on standby, which "
             "has the same state"},
        Case{"fetches nothing",
             "behind an update of moments that came for it the value of 'projector.weight' is not "
             "what it is where moments stay on the device"},
        Case{"fetches half",
             "behind an update of moments that came for it the value of 'projector.bias' is not "
             "what it is where moments stay on the device"},
        Case{"forgets nothing",
             "`forget_fetched_state` of 'projector.faulty' leaves copies, as `has_fetched_state` "
             "says"},
        Case{"throws in copy_gradients",
             "`copy_gradients` of 'projector.faulty' throws: too tired"},
        Case{"throws in hash", "`hash` of 'projector.faulty' throws: too tired"},
        Case{"throws in fetch_state", "`fetch_state` of 'projector.faulty' throws: too tired"},
        Case{"throws in offload_state",
             "`offload_state` of 'projector.faulty' throws: too tired"}}) {
    CAPTURE(fault);
    CHECK(first_breach(fault).found == found);
  }
}

}  // namespace
}  // namespace troupe::engine
