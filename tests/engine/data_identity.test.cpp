#include "engine/setup/data_identity.hpp"

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
  return identify(data::Dataset::open(options).value(), 7);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

TEST_CASE("the same samples are the same data wherever they lie", "[engine]") {
  const data::TempFolder folder;
  const auto here = of(folder, "here.json", kFirst + "\n" + kSecond);
  CHECK(here.records == 2);
  CHECK(same_data(here, of(folder, "there.json", kFirst + "\n\n" + kSecond + "\n"), "node 1").ok());
  CHECK(same_data(here, here, "node 1").ok());
}

TEST_CASE("data that differ in anything that is trained are other data", "[engine][errors]") {
  const data::TempFolder folder;
  const auto here = of(folder, "here.json", kFirst + "\n" + kSecond);
  for (const auto& other :
       {kSecond + "\n" + kFirst, replaced(kFirst, "one", "1") + "\n" + kSecond,
        replaced(kFirst, "x.png", "y.png") + "\n" + kSecond,
        replaced(kFirst, "\"a\"", "\"c\"") + "\n" + kSecond,
        // The same turns, and a defect behind them.
        replaced(kFirst, "\"one\"}", R"("one"}, {"from": "system", "value": "!"})") + "\n" +
            kSecond}) {
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

TEST_CASE("the first records of each source have the hash that they had when they were all",
          "[engine]") {
  const data::TempFolder folder;
  const std::string third = replaced(kSecond, "\"b\"", "\"c\""),
                    fourth = replaced(kSecond, "\"b\"", "\"d\"");
  const auto open = [&](const std::string& name, const std::vector<std::string>& sources) {
    data::DataOptions options;
    for (const auto& lines : sources)
      options.sources.push_back(
          {folder.write(name + std::to_string(options.sources.size()), lines), folder.path()});
    return data::Dataset::open(options).value();
  };
  const auto before = open("before", {kFirst, kSecond});
  const auto after = open("after", {kFirst + "\n" + third, kSecond + "\n" + fourth});
  const std::uint64_t hash = identify(before, 7).hash;
  CHECK(identify(before, 7).sources == std::vector<std::int64_t>{1, 1});
  CHECK(identify(after, 7).sources == std::vector<std::int64_t>{2, 2});
  CHECK(identify(after, 7).hash != hash);
  CHECK(hash_of_first(after, std::vector<std::int64_t>{1, 1}) == hash);
  CHECK(hash_of_first(after, std::vector<std::int64_t>{2, 2}) == identify(after, 7).hash);
  CHECK(hash_of_first(after, std::vector<std::int64_t>{2}) != hash);
  // One number: of all, whatever source they are in.
  CHECK(hash_of_first(before, std::vector<std::int64_t>{2}) == hash);
}

TEST_CASE("a media file of another size is other data, a missing one is not", "[engine][errors]") {
  const data::TempFolder here_folder, there_folder, without;
  here_folder.write("x.png", "picture");
  const auto here = of(here_folder, "here.json", kFirst);
  REQUIRE(here.media.size() == 1);
  CHECK((here.media[0] == MediaSize{"x.png", 7}));
  there_folder.write("x.png", "another");
  CHECK(same_data(here, of(there_folder, "there.json", kFirst), "node 1").ok());
  there_folder.write("x.png", "a larger picture");
  const auto there = of(there_folder, "there.json", kFirst);
  const auto checked = same_data(here, there, "node 1 (host, pid 7)");
  REQUIRE_FALSE(checked.ok());
  CHECK(checked.error().code == Errc::bad_data);
  CHECK(checked.error().message ==
        "node 1 (host, pid 7) has other data: it has 'x.png' with 16 bytes, others with 7");
  CHECK(checked.error().fix.find("the same media files") != std::string::npos);

  // A head without media compares its nodes with each other.
  auto head = of(without, "head.json", kFirst);
  CHECK(head.media[0].bytes == -1);
  CHECK(same_data(head, here, "node 0").ok());
  CHECK(same_data(here, head, "node 0").ok());
  learn_sizes(head, here);
  CHECK_FALSE(same_data(head, there, "node 1").ok());
}

TEST_CASE("so many media are looked at, the same ones on every node", "[engine]") {
  const data::TempFolder folder;
  std::string lines;
  for (int i = 0; i < 300; ++i)
    lines += replaced(replaced(kFirst, "\"a\"", "\"" + std::to_string(i) + "\""), "x.png",
                      std::to_string(i) + ".png") +
             "\n";
  const auto first = of(folder, "first.json", lines), second = of(folder, "second.json", lines);
  CHECK(first.media.size() == kComparedMedia);
  CHECK((first.media == second.media));
  CHECK(first.media[0].name != "0.png");  // Drawn by the seed, not the first ones of the file.
}

TEST_CASE("a node that does not see a source is held to the others", "[engine]") {
  const data::TempFolder folder;
  const auto open = [&](const std::string& name, const std::vector<std::string>& sources,
                        std::size_t hidden) {
    data::DataOptions options;
    for (const auto& lines : sources)
      options.sources.push_back(
          {folder.write(name + std::to_string(options.sources.size()), lines), folder.path()});
    if (hidden < sources.size()) options.sources[hidden].is_here = false;
    return identify(data::Dataset::open(options).value(), 7);
  };
  const auto head = open("head", {kFirst, kSecond}, 2);
  CHECK(same_data(head, open("node", {"is not there", kSecond}, 0), "node 1").ok());
  CHECK(same_data(head, open("node", {kFirst, "is not there"}, 1), "node 1").ok());
  const auto other =
      same_data(head, open("node", {"", replaced(kSecond, "two", "2")}, 0), "node 1");
  REQUIRE_FALSE(other.ok());
  CHECK(other.error().message.find("other ones in data.sources[1]") != std::string::npos);
  const auto more = same_data(
      head, open("node", {"", kSecond + "\n" + replaced(kSecond, "\"b\"", "\"c\"")}, 0), "node 1");
  REQUIRE_FALSE(more.ok());
  CHECK(more.error().message.find("2 samples, the head 1 in data.sources[1]") != std::string::npos);
  const auto fewer = same_data(head, open("node", {""}, 0), "node 1");
  REQUIRE_FALSE(fewer.ok());
  CHECK(fewer.error().message.find("1 sources, the head 2") != std::string::npos);
}

}  // namespace
}  // namespace troupe::engine
