"""Users and access rules of 5.x."""

from __future__ import annotations

from rmqtool.remoting.bodies.broker import AclInfo, UserInfo
from rmqtool.remoting.body import Content
from rmqtool.remoting.declared import CLUSTER, String
from rmqtool.remoting.headers import Code, Request, Right


class CreateUser(Request):
    """Create a user."""

    codes = (Code(3001, "AUTH_CREATE_USER", since="5.3.0"),)
    java = "CreateUserRequestHeader"
    java_since = "5.3.0"
    body = UserInfo
    rights = (Right.UPDATE,)
    scope = CLUSTER

    username: String | None = None


class UpdateUser(Request):
    """Change a user."""

    codes = (Code(3002, "AUTH_UPDATE_USER", since="5.3.0"),)
    java = "UpdateUserRequestHeader"
    java_since = "5.3.0"
    body = UserInfo
    rights = (Right.UPDATE,)
    scope = CLUSTER

    username: String | None = None


class DeleteUser(Request):
    """Delete a user."""

    codes = (Code(3003, "AUTH_DELETE_USER", since="5.3.0"),)
    java = "DeleteUserRequestHeader"
    java_since = "5.3.0"
    rights = (Right.UPDATE,)
    scope = CLUSTER

    username: String | None = None


class GetUser(Request):
    """Read a user."""

    codes = (Code(3004, "AUTH_GET_USER", since="5.3.0"),)
    java = "GetUserRequestHeader"
    java_since = "5.3.0"
    answer_body = UserInfo
    rights = (Right.GET,)
    scope = CLUSTER

    username: String | None = None


class ListUsers(Request):
    """List users."""

    codes = (Code(3005, "AUTH_LIST_USER", since="5.3.0"),)
    java = "ListUsersRequestHeader"
    java_since = "5.3.0"
    answer_body = Content.JSON
    rights = (Right.GET,)
    scope = CLUSTER

    filter: String | None = None


class CreateAcl(Request):
    """Create the rules of a subject."""

    codes = (Code(3006, "AUTH_CREATE_ACL", since="5.3.0"),)
    java = "CreateAclRequestHeader"
    java_since = "5.3.0"
    body = AclInfo
    rights = (Right.UPDATE,)
    scope = CLUSTER

    subject: String | None = None


class UpdateAcl(Request):
    """Change the rules of a subject."""

    codes = (Code(3007, "AUTH_UPDATE_ACL", since="5.3.0"),)
    java = "UpdateAclRequestHeader"
    java_since = "5.3.0"
    body = AclInfo
    rights = (Right.UPDATE,)
    scope = CLUSTER

    subject: String | None = None


class DeleteAcl(Request):
    """Delete rules of a subject."""

    codes = (Code(3008, "AUTH_DELETE_ACL", since="5.3.0"),)
    java = "DeleteAclRequestHeader"
    java_since = "5.3.0"
    rights = (Right.UPDATE,)
    scope = CLUSTER

    subject: String | None = None
    policy_type: String | None = None
    resource: String | None = None


class GetAcl(Request):
    """Read the rules of a subject."""

    codes = (Code(3009, "AUTH_GET_ACL", since="5.3.0"),)
    java = "GetAclRequestHeader"
    java_since = "5.3.0"
    answer_body = AclInfo
    rights = (Right.GET,)
    scope = CLUSTER

    subject: String | None = None


class ListAcls(Request):
    """List rules."""

    codes = (Code(3010, "AUTH_LIST_ACL", since="5.3.0"),)
    java = "ListAclsRequestHeader"
    java_since = "5.3.0"
    answer_body = Content.JSON
    rights = (Right.GET,)
    scope = CLUSTER

    subject_filter: String | None = None
    resource_filter: String | None = None
