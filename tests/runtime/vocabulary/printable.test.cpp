#include "runtime/vocabulary/printable.hpp"

#include <catch2/catch_test_macros.hpp>

#include "runtime/vocabulary/result.hpp"

namespace troupe {
namespace {

TEST_CASE("what acts on a terminal is written out", "[vocabulary]") {
  CHECK(printable("\x1b[2Jall\rgone\a\x7f") == "\\x1b[2Jall\\x0dgone\\x07\\x7f");
  // Right-to-left override, isolate, mark; next line of C1.
  CHECK(printable("a\u202egpj.exe") == "a\\u202egpj.exe");
  CHECK(printable("\u2066x\u2069\u200f\u061c") == "\\u2066x\\u2069\\u200f\\u061c");
  CHECK(printable("\xc2\x9b"
                  "31m") == "\\u009b31m");
}

TEST_CASE("everything else stays as it is", "[vocabulary]") {
  for (const char* text :
       {"", "two\nlines\tand a tab", "Grüße, 你好, שלום, 🙂", "\xff\xc2", "\xe2\x80"})
    CHECK(printable(text) == text);
}

TEST_CASE("an error's text is printable", "[vocabulary]") {
  CHECK(to_string(Error{Errc::bad_data, "no file \x1b[31m", "a\x07", ""}) ==
        "a\\x07: no file \\x1b[31m");
}

}  // namespace
}  // namespace troupe
