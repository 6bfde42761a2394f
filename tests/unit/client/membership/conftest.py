import pytest

from tests.support.membership import FakeController, Training


@pytest.fixture
def controller() -> FakeController:
    return FakeController()


@pytest.fixture
def training(controller: FakeController) -> Training:
    return Training(controller)
