#pragma once

#include <memory>

#include "troupe/actors/door/tls_channel.hpp"
#include "troupe/actors/transport/byte_link.hpp"

namespace troupe::internal {

/// *channel*, after its handshake, for CAF's event loop.
///
/// If it *is_direct*, nothing between the two hosts can have closed it in good
/// order: then it was the other side's process, or the kernel at its end.
std::unique_ptr<byte_link> make_link(std::unique_ptr<tls_channel> channel,
                                     bool is_direct = false);

} // namespace troupe::internal
