#include "tests/torch_catch.hpp"

#include "engine/reference/layer_calls.hpp"

#include <ATen/ops/zeros.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/plugins/user_calls.hpp"

namespace troupe::engine {
namespace {

/// Notes what its caller is said to be in, and adds 1.
struct Noting final : models::Layer {
  explicit Noting(std::vector<std::string>& to) : calls(to) {}
  at::Tensor forward(const at::Tensor& rows, const models::PackedBatch& /*batch*/) override {
    const auto call = plugins::oldest_user_call();
    calls.push_back(call ? call->function : "nobody's");
    return rows.add(1);
  }
  std::vector<models::Parameter>& parameters() override { return none; }

  std::vector<std::string>& calls;
  std::vector<models::Parameter> none;
};

TEST_CASE("a layer that a reference runs can be named meanwhile", "[engine]") {
  ModuleSpec module;
  module.name = "llm";
  module.layers.resize(2);
  module.layers[0].name = "llm.embed";
  module.layers[1].name = "llm.head";
  std::vector<std::string> calls;
  std::vector<std::unique_ptr<models::Layer>> layers;
  for (int i = 0; i < 2; ++i) layers.push_back(std::make_unique<Noting>(calls));
  const auto rows = run_layers(module, layers, at::zeros({1, 1}), {}, work_words({"a"}, 3));
  CHECK(rows.item<float>() == 2);
  CHECK(calls ==
        std::vector<std::string>{"layer 'llm.embed' of module 'llm' on sample 'a' in step 3",
                                 "layer 'llm.head' of module 'llm' on sample 'a' in step 3"});
  CHECK_FALSE(plugins::oldest_user_call());
}

TEST_CASE("what a reference trains is told in words, at most three samples of it", "[engine]") {
  CHECK(work_words({"a", "b"}, 1) == "samples 'a', 'b' in step 1");
  CHECK(work_words({"a", "b", "c", "d", "e"}, 7) == "samples 'a', 'b', 'c' and 2 others in step 7");
  CHECK(backward_words(work_words({"a"}, 2)) == "the backward of a layer on sample 'a' in step 2");
}

}  // namespace
}  // namespace troupe::engine
