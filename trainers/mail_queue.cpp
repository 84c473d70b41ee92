#include "troupe/trainers/mail_queue.hpp"

#include <utility>

namespace troupe::internal {

void mail_queue::push(mail x) {
  auto type = x.body.type_at(0);
  std::lock_guard handling{handling_};
  if (auto known = handlers_.find(type); known != handlers_.end())
    return call(known->second, x);
  std::lock_guard guard{mutex_};
  waiting_[type].push_back(std::move(x));
  ++size_;
  changed_.notify_all();
}

void mail_queue::call(const handler& f, mail& x) {
  f(x);
  std::lock_guard guard{mutex_};
  took(size_ == 0);
}

void mail_queue::took(bool is_empty) {
  if (auto places = returns_.take(is_empty))
    give_back_(places);
}

void mail_queue::note_dropped(std::uint64_t messages) {
  std::lock_guard guard{mutex_};
  dropped_ = messages;
}

void mail_queue::note_unread() {
  std::lock_guard guard{mutex_};
  ++unread_;
}

void mail_queue::end() {
  std::lock_guard guard{mutex_};
  has_ended_ = true;
  changed_.notify_all();
}

std::optional<mail> mail_queue::take(caf::type_id_t type) {
  std::lock_guard guard{mutex_};
  return take_locked(type);
}

std::optional<mail> mail_queue::take_locked(caf::type_id_t type) {
  auto found = waiting_.find(type);
  if (found == waiting_.end() || found->second.empty())
    return std::nullopt;
  auto result = std::move(found->second.front());
  found->second.pop_front();
  took(--size_ == 0);
  return result;
}

bool mail_queue::is_ready(caf::type_id_t type) const {
  std::lock_guard guard{mutex_};
  return is_ready_locked(type);
}

bool mail_queue::is_ready_locked(caf::type_id_t type) const {
  auto found = waiting_.find(type);
  return has_ended_ || (found != waiting_.end() && !found->second.empty());
}

void mail_queue::wait(caf::type_id_t type,
                      std::optional<clock::time_point> deadline) {
  std::unique_lock lock{mutex_};
  auto is_over = [&] { return is_ready_locked(type); };
  if (deadline)
    changed_.wait_until(lock, *deadline, is_over);
  else
    changed_.wait(lock, is_over);
}

void mail_queue::handle(caf::type_id_t type, handler f) {
  std::lock_guard handling{handling_};
  auto& known = handlers_[type] = std::move(f);
  while (auto x = take(type)) // What came before.
    known(*x);
}

void mail_queue::close() {
  std::lock_guard handling{handling_};
  handlers_.clear();
}

std::size_t mail_queue::size() const {
  std::lock_guard guard{mutex_};
  return size_;
}

std::uint64_t mail_queue::dropped() const {
  std::lock_guard guard{mutex_};
  return dropped_ + unread_;
}

} // namespace troupe::internal
