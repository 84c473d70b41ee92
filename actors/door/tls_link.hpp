#pragma once

#include <memory>

#include "troupe/actors/door/tls_channel.hpp"
#include "troupe/actors/transport/byte_link.hpp"

namespace troupe::internal {

/// *channel*, after its handshake, for CAF's event loop.
std::unique_ptr<byte_link> make_link(std::unique_ptr<tls_channel> channel);

} // namespace troupe::internal
