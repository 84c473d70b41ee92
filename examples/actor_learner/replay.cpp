#include "replay.hpp"

void replay_buffer::add(const std::vector<transition>& xs) {
  for (auto& x : xs) {
    if (all_.size() < capacity)
      all_.push_back(x);
    else
      all_[added_ % capacity] = x; // the oldest
    ++added_;
  }
}

std::vector<transition> replay_buffer::draw(std::uint64_t count) {
  std::uniform_int_distribution<std::size_t> any{0, all_.size() - 1};
  std::vector<transition> result;
  result.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i)
    result.push_back(all_[any(random_)]);
  drawn_ += count;
  return result;
}

void exchange_state::serve() {
  while (!drawers.empty() && buffer.can_be_drawn_from()) {
    auto [learner, count] = std::move(drawers.front());
    drawers.pop_front();
    learner.deliver(drawn_transitions{buffer.draw(count)});
  }
  for (; !adders.empty() && buffer.wants_more(); adders.pop_front())
    adders.front().deliver();
}

exchange_actor::behavior_type
exchange(exchange_actor::stateful_pointer<exchange_state> self) {
  return {
    [self](const add_transitions& x) -> caf::result<void> {
      auto& state = self->state;
      state.buffer.add(x.all);
      auto promise = self->make_response_promise<void>();
      state.adders.push_back(promise);
      state.serve();
      return promise;
    },
    [self](draw_transitions x) -> caf::result<drawn_transitions> {
      auto& state = self->state;
      auto promise = self->make_response_promise<drawn_transitions>();
      state.drawers.emplace_back(promise, x.count);
      state.serve();
      return promise;
    },
    [self](get_weights x) {
      auto& newest = self->state.newest;
      return x.version == newest.version ? weights{newest.version, {}} : newest;
    },
    [self](weights& x) { self->state.newest = std::move(x); },
  };
}
