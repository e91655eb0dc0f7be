from my_loss import my_loss

from rpg.testing import assert_gradient


def test_it_follows_the_reverse_kl():
    assert_gradient(my_loss, of="reward - 0.3 rkl", within=1e-6)
