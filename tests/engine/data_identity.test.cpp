#include "engine/data_identity.hpp"

#include <catch2/catch_test_macros.hpp>

#include "tests/runtime/data/temp_folder.hpp"

namespace troupe::engine {
namespace {

const std::string kFirst =
    R"({"id": "a", "image": ["x.png"], "conversations": [{"from": "human", "value": "<image>?"}, {"from": "gpt", "value": "one"}]})";
const std::string kSecond =
    R"({"id": "b", "conversations": [{"from": "human", "value": "?"}, {"from": "gpt", "value": "two"}]})";

DataIdentity of(const data::TempFolder& folder, const std::string& name, const std::string& lines) {
  data::DataOptions options;
  options.sources = {{folder.write(name, lines), folder.path()}};
  return identify(data::Dataset::open(options).value());
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

TEST_CASE("the same samples are the same data wherever they lie", "[engine]") {
  const data::TempFolder folder;
  const auto here = of(folder, "here.json", kFirst + "\n" + kSecond);
  CHECK(here.records == 2);
  CHECK((here == of(folder, "there.json", kFirst + "\n\n" + kSecond + "\n")));
  CHECK(same_data(here, here, "node 1").ok());
}

TEST_CASE("data that differ in anything that is trained are other data", "[engine][errors]") {
  const data::TempFolder folder;
  const auto here = of(folder, "here.json", kFirst + "\n" + kSecond);
  for (const auto& other : {kSecond + "\n" + kFirst, replaced(kFirst, "one", "1") + "\n" + kSecond,
                            replaced(kFirst, "x.png", "y.png") + "\n" + kSecond,
                            replaced(kFirst, "\"a\"", "\"c\"") + "\n" + kSecond}) {
    const auto checked = same_data(here, of(folder, "there.json", other), "node 1 (host, pid 7)");
    REQUIRE_FALSE(checked.ok());
    CHECK(checked.error().code == Errc::bad_data);
    CHECK(checked.error().message.find("node 1 (host, pid 7) has other data") == 0);
    CHECK(checked.error().message.find("as many samples") != std::string::npos);
    CHECK(checked.error().fix.find("--job") != std::string::npos);
  }
  const auto fewer = same_data(here, of(folder, "there.json", kFirst), "node 1");
  REQUIRE_FALSE(fewer.ok());
  CHECK(fewer.error().message.find("it has 1 sample, the head 2") != std::string::npos);
}

}  // namespace
}  // namespace troupe::engine
