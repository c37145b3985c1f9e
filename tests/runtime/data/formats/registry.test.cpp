#include "runtime/data/formats/registry.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <optional>
#include <stdexcept>

#include "runtime/data/samples/dataset.hpp"
#include "runtime/plugins/user_calls.hpp"
#include "tests/runtime/data/temp_folder.hpp"

namespace troupe::data {
namespace {

using Catch::Matchers::ContainsSubstring;

const std::string kNotUtf8 = "\xff\xfe";

/// What becomes of a file in a format that returns this.
Result<std::vector<Record>> answer_to(ReadRecords read) {
  static int count = 0;
  const std::string name = "given-" + std::to_string(count++);
  REQUIRE(register_format({name, std::move(read)}).ok());
  return read_records(name, "text", "list.x");
}

Result<std::vector<Record>> answer_to(std::vector<Record> records) {
  return answer_to([=](auto, const auto&) { return records; });
}

Record spoken(const std::string& answer) {
  Record record;
  record.turns = {{Role::user, "Hi"}, {Role::assistant, answer}};
  return record;
}

/// The defect of the only record.
std::string defect_of(Record record) {
  const auto read = answer_to({std::move(record)});
  REQUIRE(read.ok());
  REQUIRE(read.value().size() == 1);
  return read.value().front().defect;
}

TEST_CASE("a format that is added is one by its name, and reads what its source names", "[data]") {
  REQUIRE(register_format({"shout",
                           [](std::string_view text, const std::string& file) {
                             Record record = spoken(std::string(text));
                             record.where = file + ":1";
                             return Result<std::vector<Record>>({record, spoken("second")});
                           }})
              .ok());
  const auto names = format_names();
  CHECK(names.front() == "llava");
  CHECK(std::ranges::find(names, "shout") != names.end());
  const TempFolder folder;
  DataOptions options;
  options.sources = {{folder.write("list.txt", "Ho!"), {}, "shout"}};
  const auto dataset = Dataset::open(options);
  REQUIRE(dataset.ok());
  REQUIRE(dataset.value().size() == 2);
  CHECK(dataset.value()[0].turns.back().text == "Ho!");
  CHECK(dataset.value()[0].where == "list.txt:1");
  CHECK(dataset.value()[0].id == "list.txt#0");
  CHECK(dataset.value()[1].id == "list.txt#1");
  CHECK(dataset.value()[1].where == "list.txt#1");
}

TEST_CASE("a format has a name of its own and a function", "[data][errors]") {
  const auto read = [](auto, const auto&) { return Result<std::vector<Record>>({spoken("x")}); };
  CHECK_THAT(register_format({"llava", read}).error().message, ContainsSubstring("there already"));
  CHECK_THAT(register_format({"Tab separated", read}).error().message,
             ContainsSubstring("has no name"));
  CHECK_THAT(register_format({"empty", {}}).error().message, ContainsSubstring("has no `read`"));
}

TEST_CASE("while a format of one's own reads, its name and file tell who does not return",
          "[data][errors]") {
  std::optional<plugins::UserCall> seen;
  const auto read = answer_to([&seen](auto, const auto&) -> Result<std::vector<Record>> {
    seen = plugins::oldest_user_call();
    throw std::runtime_error("enough");
  });
  CHECK_FALSE(read.ok());
  REQUIRE(seen);
  CHECK_THAT(seen->function, ContainsSubstring("`read` of format 'given-"));
  CHECK_THAT(seen->function, ContainsSubstring(" on list.x"));
  CHECK_FALSE(plugins::oldest_user_call());
}

TEST_CASE("an unknown format is refused by the source's key", "[data][errors]") {
  const TempFolder folder;
  DataOptions options;
  options.sources = {{folder.write("list.txt", "Ho!"), {}, "lava"}};
  const auto dataset = Dataset::open(options);
  REQUIRE_FALSE(dataset.ok());
  CHECK(dataset.error().where == "data.sources[0].format");
  CHECK_THAT(dataset.error().message, ContainsSubstring("unknown format 'lava'"));
  CHECK_THAT(dataset.error().fix, ContainsSubstring("llava"));
}

TEST_CASE("what a record lacks is its defect", "[data][errors]") {
  CHECK(defect_of(spoken("fine")).empty());
  CHECK(defect_of({}) == "there is no turn of a conversation");
  CHECK(defect_of(spoken(kNotUtf8)) == "turn 2 is no UTF-8");
  auto late = spoken("x");
  late.turns.push_back({Role::system, "Be brief."});
  CHECK_THAT(defect_of(late), ContainsSubstring("turn 3 is a system turn"));
  auto pathless = spoken("x");
  pathless.audio = {""};
  CHECK_THAT(defect_of(pathless), ContainsSubstring("path of a picture or sound is empty"));
  auto told = spoken("x");
  told.defect = "of its own";
  CHECK(defect_of(told) == "of its own");
  told.defect = kNotUtf8;
  CHECK_THAT(defect_of(told), ContainsSubstring("no UTF-8"));
}

TEST_CASE("what a format does to a whole file ends with its name and the file", "[data][errors]") {
  const auto refused = [](const Result<std::vector<Record>>& read, const std::string& why) {
    REQUIRE_FALSE(read.ok());
    CHECK(read.error().code == Errc::bad_data);
    CHECK_THAT(read.error().message, ContainsSubstring("format 'given-"));
    CHECK_THAT(read.error().message, ContainsSubstring(why));
    CHECK_THAT(read.error().where, ContainsSubstring("list.x"));
    CHECK_FALSE(read.error().fix.empty());
  };
  refused(answer_to(std::vector<Record>{}), "finds no record");
  auto odd = spoken("x");
  odd.id = kNotUtf8;
  refused(answer_to({odd}), "no UTF-8, of record 0");
  refused(answer_to([](auto, const auto&) -> Result<std::vector<Record>> {
            throw std::runtime_error("of its own accord");
          }),
          "throws: of its own accord");
  refused(answer_to([](auto, const auto&) -> Result<std::vector<Record>> { throw 7; }),
          "throws no std::exception");
  refused(answer_to([](auto, const std::string& file) -> Result<std::vector<Record>> {
            return Error{Errc::invalid_argument, "line 3 has no tab", file + ":3", {}};
          }),
          "line 3 has no tab");
}

}  // namespace
}  // namespace troupe::data
