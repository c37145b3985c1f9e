#include "runtime/observe/logger.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/scratch_folder.hpp"

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;

namespace troupe::observe {
namespace {

using testing::ScratchFolder;

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_CASE("a log line has time, node and level; lower levels go nowhere", "[observe]") {
  const ScratchFolder folder;
  const auto logger =
      Logger::create(nullptr, {.node_name = "node 2", .file = folder / "log"}).value();
  logger.debug("quiet");
  logger.info("braces {} stay");
  logger.warning("careful");
  const auto text = read(folder / "log");
  CHECK_THAT(text, !ContainsSubstring("quiet"));
  CHECK_THAT(text, ContainsSubstring(" [node 2] info: braces {} stay\n"));
  CHECK_THAT(text, EndsWith(" [node 2] warning: careful\n"));
  // 2026-01-02 12:34:56.789 and a space before the node.
  CHECK(text.find("[node 2]") == 24);
}

TEST_CASE("an error is logged with its fix, and copies share a log", "[observe]") {
  const ScratchFolder folder;
  const auto logger = Logger::create(nullptr, {.node_name = "n", .file = folder / "log"}).value();
  const Logger copy = logger;
  copy.error(Error{Errc::bad_data, "image has 0 pixels", "sample s7", "remove it"});
  CHECK_THAT(read(folder / "log"),
             ContainsSubstring("error: sample s7: image has 0 pixels\n  fix: remove it\n"));
}

TEST_CASE("an empty logger drops everything", "[observe]") {
  const Logger logger;
  logger.error("nobody hears this");
}

TEST_CASE("a log file that cannot be opened is an error", "[observe][errors]") {
  const ScratchFolder folder;
  std::ofstream(folder / "file") << "x";
  const auto logger = Logger::create(nullptr, {.node_name = "n", .file = folder / "file/log"});
  REQUIRE_FALSE(logger.ok());
  CHECK(logger.error().code == Errc::io_failed);
}

}  // namespace
}  // namespace troupe::observe
