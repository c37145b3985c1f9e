// Whether sanitizers watch a test program, which makes its code several times slower. Long tests
// take smaller sizes and fewer seeds of the same kinds there; the release build runs them whole.

#pragma once

namespace troupe::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace troupe::testing
