// Why a connection ended, in words for who runs a job. Pure.

#pragma once

#include <string>

namespace troupe::transport {

/// `status`: UCX's code (`ucs_status_t`), a number here so that nobody else needs UCX's headers.
/// The end of a sentence: `the connection to it broke`. Of a code that tells the user nothing the
/// number is named, never UCX's own words.
std::string loss_words(int status);

}  // namespace troupe::transport
