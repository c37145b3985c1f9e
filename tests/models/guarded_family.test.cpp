#include "models/family/guarded_family.hpp"

#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "models/built_on.hpp"
#include "models/factory.hpp"
#include "models/family/registry.hpp"
#include "models/mlp/family.hpp"
#include "runtime/plugins/user_calls.hpp"
#include "runtime/vocabulary/family_config.hpp"
#include "runtime/vocabulary/user_code.hpp"
#include "tests/torch_catch.hpp"

namespace troupe::models {
namespace {

/// A projector whose every function begins with `begin`.
Family beginning(const std::string& name, const std::function<void()>& begin) {
  Family family = built_on(mlp(), name);
  const auto first =
      [begin]<class Answer, class... Arguments>(std::function<Answer(Arguments...)>& member) {
        member = [begin, of = std::move(member)](Arguments... arguments) -> Answer {
          begin();
          return of(std::forward<Arguments>(arguments)...);
        };
      };
  family.problems = [](const FamilyConfig&) { return std::vector<ConfigProblem>{}; };
  family.media = [](const FamilyConfig&) { return MediaInput{}; };
  first(family.fields);
  first(family.sizes);
  first(family.problems);
  first(family.describe);
  first(family.works);
  first(family.media);
  first(family.make);
  return family;
}

ModuleConfig module_of(const std::string& family) {
  return {"m", ModuleKind::projector, family, "", false, {}, 0.02, ProjectorConfig{4, 4, 4}};
}

struct NoFields final : ConfigFields {
  void flag(const char*, bool&) override {}
  void integer(const char*, std::int32_t&, std::int64_t, std::int64_t) override {}
  void number(const char*, double&, double, double) override {}
  void word(const char*, std::string&, const std::vector<std::string>&) override {}
};

/// What each function but `make` throws, by the name of the function.
std::vector<std::pair<std::string, std::string>> thrown_by(const Family& family) {
  const auto module = module_of(family.name);
  std::vector<std::pair<std::string, std::string>> thrown;
  const auto note = [&](const char* member, const auto& ask) {
    try {
      ask();
      thrown.emplace_back(member, "nothing");
    } catch (const UserFault& fault) {
      CHECK(fault.error().code == Errc::invalid_argument);
      thrown.emplace_back(member, fault.error().message);
    }
  };
  NoFields visitor;
  FamilyConfig config = module.config;
  note("fields", [&] { family.fields(visitor, config); });
  note("sizes", [&] { static_cast<void>(family.sizes(config)); });
  note("problems", [&] { static_cast<void>(family.problems(config)); });
  note("describe", [&] { static_cast<void>(family.describe(module, {})); });
  note("works", [&] { static_cast<void>(family.works(module, {})); });
  note("media", [&] { static_cast<void>(family.media(config)); });
  return thrown;
}

TEST_CASE("what a family throws is told by function and family", "[models][errors]") {
  const auto thrower = guarded(beginning("thrower", [] { throw std::runtime_error("no idea"); }));
  for (const auto& [member, words] : thrown_by(thrower))
    CHECK(words == "`" + member + "` of family 'thrower' throws: no idea");
  const auto number = guarded(beginning("number", [] { throw 42; }));
  for (const auto& [member, words] : thrown_by(number))
    CHECK(words == "`" + member + "` of family 'number' throws no std::exception");
  // The one that it is built on is to blame.
  const auto above = guarded(built_on(thrower, "above"));
  CHECK(thrown_by(above)[1].second == "`sizes` of family 'thrower' throws: no idea");
  for (const auto& [member, words] : thrown_by(guarded(beginning("fine", [] {}))))
    CHECK(words == "nothing");
}

TEST_CASE("a family that throws is refused when it is registered", "[models][errors]") {
  const auto refused = register_family(beginning("added-thrower", [] { throw 42; }));
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message == "`fields` of family 'added-thrower' throws no std::exception");
  CHECK_FALSE(refused.error().fix.empty());
  CHECK(find_family("added-thrower") == nullptr);
}

struct OwnConfig {
  std::int32_t width = 8;
  friend bool operator==(const OwnConfig&, const OwnConfig&) = default;
};

TEST_CASE("a family whose functions read another type than its defaults is refused",
          "[models][errors]") {
  const auto said = [](const std::function<void(Family&)>& forget) {
    Family family = built_on(mlp(), "added-forgetful");
    forget(family);
    const auto added = register_family(std::move(family));
    REQUIRE_FALSE(added.ok());
    CHECK(find_family("added-forgetful") == nullptr);
    return added.error().message;
  };
  const std::string own = "troupe::models::(anonymous namespace)::OwnConfig";
  const auto types = [](const std::string& held, const std::string& asked) {
    return " of family 'added-forgetful' throws: a configuration of type " + held + " is read as " +
           asked + ": set `defaults` of its family to a " + asked + ", as ";
  };
  CHECK(said([](Family& f) {
          f.fields = fields_of<OwnConfig>(
              +[](ConfigFields& v, OwnConfig& x) { v.integer("width", x.width, 1, 64); });
        }).starts_with("`fields`" + types("troupe::models::ProjectorConfig", own)));
  CHECK(said([](Family& f) {
          f.sizes = asked<OwnConfig>(+[](const OwnConfig&) { return ModuleSizes{}; });
        }).starts_with("`sizes`" + types("troupe::models::ProjectorConfig", own)));
  CHECK(said([](Family& f) {
          f.defaults = OwnConfig{};
        }).starts_with("`fields`" + types(own, "troupe::models::ProjectorConfig")));
  FamilyConfig nothing;
  CHECK_THROWS_AS(nothing.as<OwnConfig>(), std::logic_error);
  CHECK_THROWS_AS(nothing.edit<OwnConfig>(), std::logic_error);
}

/// Has not the parameters that it was given.
struct Mistaken final : Layer {
  Mistaken(std::string fault, std::vector<Parameter> list)
      : fault(std::move(fault)), list(std::move(list)) {
    auto& own = this->list;
    if (this->fault == "lacks") own.pop_back();
    if (this->fault == "renames") own.front().name = "m.other";
    if (this->fault == "turns") std::swap(own.front(), own.back());
  }
  at::Tensor forward(const at::Tensor& rows, const PackedBatch&) override { return rows; }
  std::vector<Parameter>& parameters() override {
    if (fault == "throws") throw std::runtime_error("too tired");
    return list;
  }

  const std::string fault;
  std::vector<Parameter> list;
};

TEST_CASE("a layer that has not the parameters that its family describes is refused",
          "[models][errors]") {
  const auto said = [](const std::string& fault) -> std::string {
    Family family = built_on(mlp(), "mistaken-" + fault);
    family.make = [fault](const ModuleConfig&, int,
                          std::vector<Parameter> list) -> std::unique_ptr<Layer> {
      return std::make_unique<Mistaken>(fault, std::move(list));
    };
    REQUIRE(register_family(std::move(family)).ok());
    const auto module = module_of("mistaken-" + fault);
    const auto layer = make_layer(module, {module}, 0, {});
    return layer.ok() ? "made" : layer.error().message;
  };
  const auto refused = [](const std::string& fault) {
    return "family 'mistaken-" + fault + "' cannot make layer 0: ";
  };
  CHECK(said("none") == "made");
  CHECK(said("throws") == refused("throws") + "too tired");
  CHECK(said("lacks") == refused("lacks") + "it has 3 parameters, and `describe` lists 4");
  CHECK(said("renames") ==
        refused("renames") + "its parameter 'm.other' is where `describe` has 'm.linear_1.weight'");
  CHECK(said("turns") ==
        refused("turns") +
            "its parameter 'm.linear_2.bias' is where `describe` has 'm.linear_1.weight'");
}

TEST_CASE("a layer that fails in LibTorch is its family's, and want of memory is nobody's",
          "[models][errors]") {
  int number = 0;
  LayerOptions options;
  const auto failure_of = [&](const std::string& family) {
    const ModuleConfig module = module_of(family);
    const auto layer = make_layer(module, {module}, 0, options);
    REQUIRE_FALSE(layer.ok());
    return layer.error();
  };
  const auto told = [&](const std::function<void()>& fail) {
    Family family = built_on(mlp(), "clumsy-" + std::to_string(number++));
    family.make = [fail](const ModuleConfig&, int, std::vector<Parameter>) {
      fail();
      return std::unique_ptr<Layer>();
    };
    const std::string name = family.name;
    REQUIRE(register_family(std::move(family)).ok());
    return failure_of(name);
  };
  const Error shape = told([] { static_cast<void>(at::zeros({2}).view({3})); });
  CHECK(shape.code == Errc::invalid_argument);
  CHECK(shape.message.starts_with("family 'clumsy-0' cannot make layer 0: LibTorch: shape '[3]'"));
  CHECK(shape.message.find('\n') == std::string::npos);
  CHECK(shape.fix == "correct its `make`");
  const auto is_nobodys = [](const Error& error, const std::string& family) {
    CHECK(error.code == Errc::unavailable);
    CHECK(error.message.starts_with("layer m.mlp of family '" + family + "' cannot be made: "));
    CHECK(error.fix == "use a smaller model or another device");
  };
  is_nobodys(told([] {
               throw c10::Error({"f", "g.cpp", 1}, "CUDA out of memory. So it is.");
             }),
             "clumsy-1");
  is_nobodys(told([] { throw std::bad_alloc(); }), "clumsy-2");
  options.device = at::Device("xpu");  // Where not even its parameters can be.
  is_nobodys(failure_of("clumsy-0"), "clumsy-0");
}

TEST_CASE("a family can be named while it answers", "[models]") {
  static std::string function;  // The family stays.
  const auto note = [] {
    const auto call = plugins::oldest_user_call();
    function = call ? call->function : "nobody's";
  };
  REQUIRE(register_family(beginning("added-slow", note)).ok());
  static_cast<void>(find_family("added-slow")->sizes(ProjectorConfig{}));
  CHECK(function == "`sizes` of family 'added-slow'");
  const auto module = module_of("added-slow");
  REQUIRE(make_layer(module, {module}, 0, {}).ok());
  CHECK(function == "`make` of family 'added-slow'");
  CHECK_FALSE(plugins::oldest_user_call());
}

}  // namespace
}  // namespace troupe::models
