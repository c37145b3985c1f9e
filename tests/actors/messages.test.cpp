#include "tests/torch_catch.hpp"

#include "actors/link/messages.hpp"

#include <caf/binary_deserializer.hpp>
#include <caf/binary_serializer.hpp>
#include <vector>

#include "tests/actors/test_system.hpp"

namespace troupe::actors {
namespace {

/// Messages of a test, as they cross the border of a process.
class Wire {
 public:
  template <class... Values>
  std::vector<char> written(Values... values) {
    std::vector<char> bytes;
    caf::binary_serializer sink(system_.get(), bytes);
    REQUIRE_FALSE(sink(values...));
    return bytes;
  }
  NodeHello read(const std::vector<char>& bytes) {
    NodeHello hello;
    caf::binary_deserializer source(system_.get(), bytes);
    REQUIRE_FALSE(source(hello));
    return hello;
  }

 private:
  TestSystem system_;
};

TEST_CASE("a node's first words come through whole", "[actors]") {
  Wire wire;
  NodeHolding holding;
  holding.progress.step = 7;
  const NodeHello said{"host", 42, 3, "1.0 (abc)", {holding}, "5f0c", 2, true};
  const NodeHello heard = wire.read(wire.written(said));
  CHECK(heard.host == "host");
  CHECK(heard.pid == 42);
  CHECK(heard.wanted_node == 3);
  CHECK(heard.build == "1.0 (abc)");
  REQUIRE(heard.holding.size() == 1);
  CHECK(heard.holding.front().progress.step == 7);
  CHECK(heard.run_id == "5f0c");
  CHECK(heard.incarnation == 2);
  CHECK(heard.is_heads_own);
  CHECK(heard.is_whole);
}

TEST_CASE("the build is heard of nodes whose first words are shorter or longer",
          "[actors][errors]") {
  Wire wire;
  const std::string host = "old", build = "0.9 (def)";
  // As builds have said it before there was a place to say whose a process is; and before that.
  const auto shorter = wire.written(host, 42, -1, build, std::vector<NodeHolding>{{}},
                                    std::string(), std::int64_t{1});
  for (const auto& bytes : {shorter, wire.written(host, 42, -1, build)}) {
    const NodeHello heard = wire.read(bytes);
    CHECK(heard.host == host);
    CHECK(heard.build == build);
    CHECK(heard.holding.empty());  // None of what is half understood.
    CHECK(heard.incarnation == 0);
    CHECK_FALSE(heard.is_whole);
  }
  auto longer = wire.written(NodeHello{host, 42, -1, build});
  longer.insert(longer.end(), 9, 'x');
  CHECK(wire.read(longer).build == build);
}

}  // namespace
}  // namespace troupe::actors
