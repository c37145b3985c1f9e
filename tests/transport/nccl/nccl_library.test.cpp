// Which NCCL a machine has: none, something else, an old one, the fake one, and the real one if it
// is there.

#include "transport/nccl/nccl_library.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>

#include "tests/transport/nccl/ranks.hpp"

namespace troupe::transport::testing {
namespace {

using Catch::Matchers::ContainsSubstring;

/// The environment variable for as long as a test needs it.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { unsetenv(name_); }

 private:
  const char* name_;
};

void check_lacking(const std::string& file, const std::string& words) {
  const auto library = NcclLibrary::load(file);
  REQUIRE_FALSE(library.ok());
  CHECK(library.error().code == Errc::unavailable);
  CHECK_THAT(library.error().message, ContainsSubstring(words));
  CHECK_THAT(library.error().message, ContainsSubstring(file));
  CHECK_THAT(library.error().fix, ContainsSubstring("TROUPE_NCCL_LIBRARY"));
}

TEST_CASE("a library of NCCL is loaded by its file, with its version", "[transport]") {
  const auto library = NcclLibrary::load(FakeNccl::file());
  REQUIRE(library.ok());
  CHECK(library.value()->version() == 22809);
  CHECK(library.value()->can_shrink());
  CHECK(library.value()->can_revoke());
  CHECK(missing_parts(*library.value()).empty());
}

TEST_CASE("an older library says what recovery does without", "[transport]") {
  const auto library = NcclLibrary::load(FakeNccl::file("fake_nccl_old"));
  REQUIRE(library.ok());
  CHECK(missing_parts(*library.value()) ==
        std::vector<std::string>{"ncclCommShrink (from 2.27.3)", "ncclCommRevoke (from 2.28.7)"});
}

TEST_CASE("versions are written as NCCL writes them", "[transport]") {
  CHECK(nccl_version_text(22809) == "2.28.9");
  CHECK(nccl_version_text(21803) == "2.18.3");
  CHECK(nccl_version_text(2708) == "2.7.8");  // Up to 2.8 a digit less.
}

TEST_CASE("what is no library of NCCL is refused with the reason", "[transport][errors]") {
  check_lacking("/nowhere/libnccl.so.2", "cannot be loaded");
  check_lacking("libm.so.6", "has no function ncclGetVersion, so it is no NCCL");
  const Variable old("FAKE_NCCL_VERSION", "21710");
  check_lacking(FakeNccl::file(), "is version 2.17.10, older than 2.18");
}

TEST_CASE("the environment names the library", "[transport]") {
  CHECK(NcclLibrary::default_file() == "libnccl.so.2");
  const Variable variable("TROUPE_NCCL_LIBRARY", FakeNccl::file());
  CHECK(NcclLibrary::default_file() == FakeNccl::file());
  CHECK(NcclLibrary::load().ok());
}

TEST_CASE("NCCL's codes become errors of ours", "[transport][errors]") {
  const auto library = NcclLibrary::load(FakeNccl::file()).value();
  const auto error = library->error("opening", nccl::Code::remote_error);
  CHECK(error.code == Errc::transport_failed);
  CHECK(error.message == "opening: NCCL says 'remote error' (6)");
  CHECK(library->error("opening", nccl::Code::invalid_usage).code == Errc::invalid_argument);
}

// The real library on a machine without a GPU: opening a communicator fails, in time and in words.
TEST_CASE("the real library opens communicators or says why not", "[transport]") {
  const auto library = NcclLibrary::load();
  if (!library) SKIP(library.error().message);
  Ranks one(1);
  one[0].context = std::make_shared<NcclContext>(library.value(), short_limits());
  const auto opened = one.open({0}, 1).front();
  if (opened.ok()) SKIP("there is a GPU, and the stream here is none of it");
  INFO(opened.error().message);
  CHECK((opened.error().code == Errc::transport_failed ||
         opened.error().code == Errc::invalid_argument));
  CHECK_THAT(opened.error().message, ContainsSubstring("NCCL says"));
}

}  // namespace
}  // namespace troupe::transport::testing
